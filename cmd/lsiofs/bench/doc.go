// Package bench measures lsiofs beside the limits of the machine that it runs
// on, and makes datasets to measure with. It is the work of the verb bench: Command
// shows what is measured, the rest measures.
package bench
