// Package identity determines the version of a file, whether the file is still the one that was
// listed, and, before it is opened, whether it is a regular file. The storages that read files
// (local, folders) share it.
//
//	listing   Systems.Attributes ─► Version      young ones: wait, look again
//	opening   OpenRegular        ─► a descriptor of a regular file
//	reading   Check              ─► unchanged, or storage.ErrChanged
//
// How far a file's attributes can be trusted depends on the file system that the file
// itself is on (package filesystem):
//
//   - If inode numbers are not permanent, Version.Inode is 0, and is not compared.
//   - If ctime is permanent, it is part of the version that an index compares.
//   - If the kernel caches attributes for a while, CheckAsking asks the server.
//   - A file is young if its last change is so recent that the next change could get the same
//     time. Its version can't be trusted yet, so the listing waits until that time is over.
package identity

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring/filesystem"
)

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
func (a *Attributes) Version(t filesystem.Traits) storage.Version {
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
	return storage.Compare(listed, storage.Object{SizeBytes: a.SizeBytes, Version: a.Version(filesystem.Traits{})})
}

// again repeats a call as long as signals interrupt it.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
