// Package identity says what a file is: which version of it there is, whether it is
// still the one that was listed, and that it is a file at all before it is opened.
// It is what the storages have in common that read files (local, folders).
//
//	listing   Systems.Attributes ─► Version      young ones: wait, look again
//	opening   OpenRegular        ─► a descriptor of a regular file
//	reading   Check              ─► unchanged, or storage.ErrChanged
//
// What can be believed of a file depends on the file system that it lies on itself
// (package filesystem):
//
//   - Where inode numbers don't last, Version.Inode is 0, and is not compared.
//   - Where ctime lasts, it is part of the version that an index goes by.
//   - Where attributes are kept by the kernel for a while, Check asks the server.
//   - A file that was changed so shortly ago that the next change could get the same
//     time is not believed: the listing waits until that time is over.
package identity

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// Attributes are what a file system says of a file. Times are in nanoseconds.
type Attributes struct {
	Device, Inode                            uint64
	Mode                                     uint32
	SizeBytes, ModTimeNanos, ChangeTimeNanos int64
}

// FromStat is what stat gives.
func FromStat(st *unix.Stat_t) Attributes {
	return Attributes{
		Device: st.Dev, Inode: st.Ino, Mode: st.Mode, SizeBytes: st.Size,
		ModTimeNanos: unix.TimespecToNsec(st.Mtim), ChangeTimeNanos: unix.TimespecToNsec(st.Ctim),
	}
}

// Stat looks at a path, following links. Errors are *fs.PathError. What the kernel
// says may be old where the file is remote; who reads it looks again.
func Stat(path string) (Attributes, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Stat(path, &st) }); err != nil {
		return Attributes{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return FromStat(&st), nil
}

// StatxMask is what FromStatx takes.
const StatxMask = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_CTIME | unix.STATX_INO

// FromStatx is what statx gives.
func FromStatx(st *unix.Statx_t) Attributes {
	return Attributes{
		Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, Mode: uint32(st.Mode), SizeBytes: int64(st.Size),
		ModTimeNanos: nanos(st.Mtime), ChangeTimeNanos: nanos(st.Ctime),
	}
}

func nanos(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// Regular says whether it is a regular file.
func (a *Attributes) Regular() bool { return a.Mode&unix.S_IFMT == unix.S_IFREG }

// Version is that of a file on such a file system.
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

// Check compares an open file with what was listed of it, by what the kernel says.
// It waits for nothing. Errors wrap storage.ErrChanged where it has changed.
func Check(fd int, listed storage.Object) error {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstat(fd, &st) })
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	return FromStat(&st).Check(listed)
}

// CheckAsking is Check, by what the server of a remote file system says. It may
// wait for that as a read does: for ever.
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

// Check compares them with what was listed.
func (a Attributes) Check(listed storage.Object) error {
	if !a.Regular() {
		return fmt.Errorf("no regular file any more: %w", storage.ErrChanged)
	}
	return storage.Compare(listed, storage.Object{SizeBytes: a.SizeBytes, Version: a.Version(filesystem.Traits{})})
}

// again makes a call until no signal ends it.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
