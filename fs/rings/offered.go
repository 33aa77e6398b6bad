package rings

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Parameter is the kernel's switch.
const Parameter = "/sys/module/fuse/parameters/enable_uring"

// Offered returns what prevents a mount from using FUSE over io_uring, or nil. It makes as many
// rings as a mount does, because they take descriptors and, for ordinary users, locked memory.
func Offered() error {
	set, err := os.ReadFile(Parameter)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("the kernel has no FUSE over io_uring: it needs Linux 6.14 or newer, built with CONFIG_FUSE_IO_URING")
	case err != nil:
		return err
	case !bytes.HasPrefix(set, []byte("Y")):
		return fmt.Errorf("the kernel has FUSE over io_uring switched off: write Y to %s, as root (or boot with fuse.enable_uring=1)", Parameter)
	}
	workers, err := crew()
	if err != nil {
		return err
	}
	n := sum(workers)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	} else if uint64(n) > files.Cur/2 {
		return fmt.Errorf("FUSE over io_uring takes %d open files here, and this process may have %d: allow it more (ulimit -n %d)", n, files.Cur, 4*n)
	}
	for range n {
		r, err := newRing()
		if err != nil {
			return fmt.Errorf("%w: %d rings of io_uring are not to be had here (containers often forbid it; ulimit -l bounds those of users)", err, n)
		}
		defer r.close()
	}
	return nil
}
