// Package exit holds the codes that lsiofs ends with, and gives them to errors.
//
// The function that knows what an error means wraps it: exit.With(exit.Mount, err).
// The first code stays, whoever wraps the error again. Only package main looks at it
// (CodeOf), prints the error, and ends the process.
package exit
