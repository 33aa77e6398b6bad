// Package filtering shows people and programs how lsiofs filter goes on: a bar, what the
// filter says on stderr, and a summary at the end.
package filtering
