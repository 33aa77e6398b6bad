package uring

import "github.com/lsiofs/lsiofs/uring/filesystem"

// Remote says whether an open file lies where a read may wait for another process
// or machine for ever. Two things follow. Its reads are made by threads: the
// kernel begins a direct read of FUSE within io_uring_enter, and waits there for
// the answer, and with it the ring; others it hands to a few threads of its own.
// And it is not to be mapped: its pages may be taken away at any time, and who
// touches one then waits, in a fault, which no signal ends and for which each
// stop of the Go scheduler waits too.
func Remote(fd int) bool { return filesystem.Of(fd).Remote }
