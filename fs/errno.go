package fs

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	growth "github.com/lsiofs/lsiofs/pipeline/growing"
)

// The errnos that nodes return. No other file names an errno.
const (
	ok             = syscall.Errno(0)
	errnoNoEntry   = syscall.ENOENT
	errnoReadOnly  = syscall.EROFS
	errnoExists    = syscall.EEXIST
	errnoNoSpace   = syscall.ENOSPC
	errnoTooLarge  = syscall.EFBIG
	errnoInvalid   = syscall.EINVAL
	errnoNoTmpfile = syscall.EOPNOTSUPP
	errnoTooMany   = syscall.ENFILE
)

// errStale means that a handle is of a view that a restore has replaced.
var errStale = errors.New("the checkpoint was restored after this file was opened: open it again")

// errEnding means that a request was in flight, or came, when the mount had to end.
var errEnding = errors.New("the mount has ended")

// errNoSpace means that scratch files and unfinished writes have used up their memory.
var errNoSpace = errors.New("scratch files and unfinished checkpoints have used up their space")

// errno returns what a client gets for err, about the file name.
func (p *problems) errno(name string, err error) syscall.Errno {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, errStale):
		return syscall.ESTALE
	case err == errEnding:
		return syscall.ENOTCONN // as after the process has ended
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case errors.Is(err, growth.ErrNotYet), errors.Is(err, growth.ErrNoEpoch):
		return errnoNoEntry // look-ups are repeated; status shows what is missing
	}
	p.note(name, err)
	return syscall.EIO
}

// errnoName is the errno that storage returned or, if there is none, the one that clients get.
func errnoName(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		if name := unix.ErrnoName(e); name != "" {
			return name
		}
	}
	return unix.ErrnoName(syscall.EIO)
}

// restoreErrno returns what a writer of the control file gets for a failed restore; the reason is
// in status.
func restoreErrno(err error) syscall.Errno {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case errors.Is(err, checkpoint.ErrTooLarge):
		return errnoTooLarge
	case errors.Is(err, errNoSpace):
		return errnoNoSpace
	case errors.Is(err, growth.ErrNotYet):
		return syscall.EBUSY // not EAGAIN, on which Go's os.File would wait forever for the file to become writable
	default:
		return errnoInvalid
	}
}

// renameErrno is restoreErrno for a rename onto the control file: EINVAL would mean that the rename
// itself is invalid.
func renameErrno(err error) syscall.Errno {
	if e := restoreErrno(err); e != errnoInvalid {
		return e
	}
	return syscall.EBADMSG
}

// isDead reports whether err is the answer of a mount of lsiofs whose server is gone: ENOTCONN, or,
// for requests in flight when it ended, ECONNABORTED, EIO or (with rings) ECANCELED. A live server
// returns none of these for statfs.
func isDead(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECANCELED) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EIO)
}
