package uring

import "fmt"

// Open starts an engine. ModeAuto never fails where reading is possible at
// all: Status says which engine it took, and why.
func Open(mode Mode) (Engine, error) {
	switch mode {
	case ModePread:
		return openPread(""), nil
	case ModeAuto:
		return openPread("the io_uring engine is not built yet; reading with pread"), nil
	case ModeUring:
		return nil, fmt.Errorf("io engine %q is not built yet: use %q", mode, ModePread)
	}
	return nil, fmt.Errorf("io engine %q is unknown: use %s, %s or %s", mode, ModeAuto, ModeUring, ModePread)
}
