// Package opening opens and closes datasets for the commands. It shows the progress of
// indexing, gives errors of datasets their exit codes, and lists in words the damaged
// data that was left out. After Ctrl-C it does not wait for storage that does not
// answer.
package opening
