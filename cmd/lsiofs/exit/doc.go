// Package exit defines the exit codes of lsiofs, and attaches them to errors.
//
// The function that can classify an error wraps it: exit.With(exit.Mount, err). The first code
// stays, even if the error is wrapped again. Only package main reads the code (CodeOf), prints the
// error, and ends the process.
package exit
