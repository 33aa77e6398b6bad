package storage

import "runtime"

// IsFault reports whether a recovered panic means that mapped memory could not be read
// (debug.SetPanicOnFault). Any other panic is a bug, and the caller must panic again.
func IsFault(p any) bool {
	fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	return ok && fault.Addr() >= 4096
}
