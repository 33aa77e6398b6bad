package rings

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// Parameter is the kernel's switch.
	Parameter = "/sys/module/fuse/parameters/enable_uring"
	possible  = "/sys/devices/system/cpu/possible"
)

// mostProcessors bounds the threads and the memory of a mount: each processor that the machine may have needs a
// thread and room for a reply.
const mostProcessors = 128

// Offered says what keeps a mount from FUSE over io_uring, nil where nothing does.
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
	n, err := processors()
	if err != nil {
		return err
	} else if n > mostProcessors {
		return fmt.Errorf("this machine may have %d processors (%s): lsiofs has rings for %d at most", n, possible, mostProcessors)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	} else if threads := n * workersOf(n); uint64(threads) > files.Cur/2 {
		return fmt.Errorf("FUSE over io_uring takes %d open files here, and this process may have %d: allow it more (ulimit -n %d)", threads, files.Cur, 4*threads)
	}
	r, err := newRing()
	if err != nil {
		return fmt.Errorf("%w: io_uring is not to be had here (containers often forbid it)", err)
	}
	return r.close()
}

// processors is how many processors the machine may have: for each of them the kernel wants a queue.
func processors() (int, error) {
	list, err := os.ReadFile(possible)
	if err != nil {
		return 0, err
	}
	n, err := lastOf(strings.TrimSpace(string(list)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", possible, err)
	}
	return n + 1, nil
}

// lastOf is the last number of a list as 0-3,8-11.
func lastOf(list string) (int, error) {
	last := list[strings.LastIndexAny(list, ",-")+1:]
	n, err := strconv.ParseUint(last, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no list of processors", list)
	}
	return int(n), nil
}
