package filesystem

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Systems are the file systems that a listing has seen, by device. Its methods may be called
// concurrently. The zero value is ready for use.
type Systems struct {
	mu  sync.RWMutex
	met map[uint64]*system
}

type system struct {
	traits uring.Traits
	// No change can get this time or an earlier one any more, by the clock of the file system, in
	// nanoseconds.
	over int64
}

// Known is Traits for a device that was seen before.
func (s *Systems) Known(device uint64) (t uring.Traits, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if x := s.met[device]; x != nil {
		return x.traits, true
	}
	return t, false
}

// Traits returns the traits of the file system of a device. path, relative to dirfd, is on that
// file system.
func (s *Systems) Traits(dirfd int, path string, device uint64) uring.Traits {
	if traits, ok := s.Known(device); ok {
		return traits
	}
	fd := -1
	err := again(func() (err error) {
		fd, err = unix.Openat(dirfd, path, unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return uring.Traits{} // it is gone by now
	}
	defer func() { _ = unix.Close(fd) }()
	traits := uring.TraitsOf(fd)
	var st unix.Stat_t
	if again(func() error { return unix.Fstat(fd, &st) }) == nil && st.Dev == device {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.met == nil {
			s.met = map[uint64]*system{}
		}
		s.met[device] = &system{traits: traits, over: math.MinInt64}
	}
	return traits
}

// maxSkew is how much the clock of a server may differ from ours without young files on it being
// considered old. A file that is wrongly considered young costs a wait of a Step.
const maxSkew = time.Minute

// maxLooks is how often a file is examined that is young again and again, because it is being
// written to.
const maxLooks = 3

// Young is the set of files whose next change could get the same time as their last one. It must
// not be used concurrently.
type Young struct {
	systems *Systems
	looks   int
	wait    time.Duration
	latest  map[uint64]int64 // time of the latest change of a file, by device
}

// Young returns an empty set.
func (s *Systems) Young() *Young { return &Young{systems: s} }

// Add reports whether a file that was examined between from and to is young. If so, the caller must
// examine it again after Wait, and trust only what it finds then. before is what the file was
// before the last Wait; nil at the first look.
func (y *Young) Add(a, before *Attributes, t uring.Traits, from, to time.Time) bool {
	if before != nil && *a == *before {
		return false // that time is over, and no change has come since
	}
	y.systems.mu.RLock()
	over := int64(math.MinInt64)
	if x := y.systems.met[a.Device]; x != nil {
		over = x.over
	}
	y.systems.mu.RUnlock()
	// Only ctime shows by which clock a file was changed: mtime may be set.
	changed := a.ChangeTimeNanos
	if t.NoChangeTimes {
		changed = a.ModTimeNanos
	}
	step, skew := t.Step(changed), time.Duration(0)
	if t.Remote {
		skew = maxSkew
	}
	young := false
	for _, at := range [2]int64{a.ModTimeNanos, changed} {
		if at <= over || at <= from.Add(-step-skew).UnixNano() || at >= to.Add(step+skew).UnixNano() {
			continue
		}
		young = true
		wait := step
		if !t.Remote { // the clock is ours: wait until a time in the future is over
			wait = max(step, time.Duration(at-to.UnixNano())+step)
		}
		y.wait = max(y.wait, wait)
	}
	if young {
		if y.latest == nil {
			y.latest = map[uint64]int64{}
		}
		y.latest[a.Device] = max(y.latest[a.Device], changed)
	}
	return young
}

// Wait waits until the added files are no longer young: some hundredths of a second, or some
// seconds if times are coarse. last reports that it was the last wait: a file that is young after
// it keeps being written to, and can't be trusted at all (NeverMet).
func (y *Young) Wait(ctx context.Context) (last bool, err error) {
	timer := time.NewTimer(y.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	y.systems.mu.Lock()
	defer y.systems.mu.Unlock()
	for device, at := range y.latest {
		if x := y.systems.met[device]; x != nil {
			x.over = max(x.over, at)
		}
	}
	y.wait, y.latest = 0, nil
	y.looks++
	return y.looks >= maxLooks, nil
}

// NeverMet changes a file's attributes to some that the file never has, so that every reader gets
// ErrChanged.
func (a *Attributes) NeverMet() { a.ModTimeNanos++ }

// Attributes are the attributes of a file. Times are in nanoseconds.
type Attributes struct {
	Device, Inode                            uint64
	Mode                                     uint32
	SizeBytes, ModTimeNanos, ChangeTimeNanos int64
}

// FromStat returns the attributes in a result of stat.
func FromStat(st *unix.Stat_t) Attributes {
	return Attributes{
		Device: st.Dev, Inode: st.Ino, Mode: st.Mode, SizeBytes: st.Size,
		ModTimeNanos: unix.TimespecToNsec(st.Mtim), ChangeTimeNanos: unix.TimespecToNsec(st.Ctim),
	}
}

// Stat returns the attributes of a path, following links. Errors are *fs.PathError. For a remote
// file they may be outdated; a caller that reads the file checks again.
func Stat(path string) (Attributes, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Stat(path, &st) }); err != nil {
		return Attributes{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return FromStat(&st), nil
}

// StatxMask is the mask of the fields that FromStatx needs.
const StatxMask = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_CTIME | unix.STATX_INO

// FromStatx returns the attributes in a result of statx.
func FromStatx(st *unix.Statx_t) Attributes {
	return Attributes{
		Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, Mode: uint32(st.Mode), SizeBytes: int64(st.Size),
		ModTimeNanos: nanos(st.Mtime), ChangeTimeNanos: nanos(st.Ctime),
	}
}

func nanos(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// Regular reports whether it is a regular file.
func (a *Attributes) Regular() bool { return a.Mode&unix.S_IFMT == unix.S_IFREG }

// Version returns the version of the file, on a file system with traits t.
func (a *Attributes) Version(t uring.Traits) storage.Version {
	v := storage.Version{ModTimeNanos: a.ModTimeNanos, ChangeTimeNanos: a.ChangeTimeNanos, Inode: a.Inode}
	if t.NewNumbers {
		v.Inode = 0
	}
	if t.NoChangeTimes {
		v.ChangeTimeNanos = 0
	}
	return v
}

// Check compares an open file with the listed one, using the attributes that the kernel has. It
// never blocks. If the file has changed, the error wraps storage.ErrChanged.
func Check(fd int, listed storage.Object) error {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstat(fd, &st) })
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	return FromStat(&st).Check(listed)
}

// CheckAsking is Check, but asks the server of a remote file system. Like a read, it may block
// forever.
func CheckAsking(fd int, listed storage.Object) error {
	var st unix.Statx_t
	err := again(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, StatxMask, &st)
	})
	switch {
	case err == unix.ENOENT || err == unix.ESTALE:
		return fmt.Errorf("the file is gone: %w", storage.ErrChanged)
	case err == unix.ENOSYS || err == unix.EPERM: // a sandbox without statx
		return Check(fd, listed)
	case err != nil:
		return fmt.Errorf("stat: %w", err)
	}
	return FromStatx(&st).Check(listed)
}

// Check compares the attributes with the listed object.
func (a Attributes) Check(listed storage.Object) error {
	if !a.Regular() {
		return fmt.Errorf("not a regular file any more: %w", storage.ErrChanged)
	}
	return storage.Compare(listed, storage.Object{SizeBytes: a.SizeBytes, Version: a.Version(uring.Traits{})})
}

// again repeats a call as long as signals interrupt it.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
