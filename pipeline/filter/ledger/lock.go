package ledger

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// lock keeps other filters out of a directory: other processes by a record lock on its file
// (fcntl), other ledgers of this process by held.
//
// It uses neither flock nor a lock of the open file description: a child inherits those, and has
// them from its fork until its exec. A filter starts programs all the time. If it is killed between
// the two, the child still has the lock when the next filter starts, which would refuse to run
// because of a filter that no longer exists. The kernel drops a record lock as soon as the process
// that took it has ended, whatever its children have open. It also returns the number of that
// process if the lock is held. On NFS the server treats both kinds the same way.
//
// A record lock has two traps. It does not exclude the process that holds it, and it is dropped
// when that process closes any descriptor of the file. Therefore a file in held is not even opened.
type lock struct {
	file *os.File
	id   fileID
}

type fileID struct{ device, inode uint64 }

// held has the files that this process has locked. Like the kernel's record locks, it is per
// process.
var held = struct {
	sync.Mutex
	files map[fileID]bool
}{files: map[fileID]bool{}}

// errHeld means that another filter has the lock.
var errHeld = errors.New("another lsiofs filter is writing there")

// takeLock locks the file name, which it creates if necessary. It does not wait: the error is
// errHeld, with the process that holds the lock if the kernel knows it.
func takeLock(name string) (*lock, error) {
	held.Lock()
	defer held.Unlock()
	var st unix.Stat_t
	if unix.Lstat(name, &st) == nil && held.files[fileID{uint64(st.Dev), st.Ino}] {
		return nil, fmt.Errorf("%w (this process, %d)", errHeld, os.Getpid())
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	if err = setLock(f); err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &lock{f, fileID{uint64(st.Dev), st.Ino}}
	held.files[l.id] = true
	return l, nil
}

func setLock(f *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &whole)
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) { // POSIX allows both
		if err != nil {
			err = fmt.Errorf("lock %s, so that no other filter writes there: %w", f.Name(), err)
		}
		return err
	}
	// A process on another machine, or in a namespace that is not below ours, has no number here.
	if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &whole) == nil && whole.Type != unix.F_UNLCK && whole.Pid > 0 {
		return fmt.Errorf("%w (process %d)", errHeld, whole.Pid)
	}
	return errHeld
}

// release releases the lock: it goes with the descriptor.
func (l *lock) release() error {
	held.Lock()
	defer held.Unlock()
	delete(held.files, l.id)
	return l.file.Close()
}
