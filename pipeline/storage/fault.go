package storage

import "runtime"

// IsFault says whether a recovered panic is one that debug.SetPanicOnFault makes of
// mapped memory that could not be read. All others are mistakes of ours, and go on.
func IsFault(p any) bool {
	fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	return ok && fault.Addr() >= 4096
}
