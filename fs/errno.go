package fs

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	growth "github.com/lsiofs/lsiofs/pipeline/growing"
)

// What nodes answer. No other file names an errno.
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

// errStale says that a handle is of a view that a restore has replaced.
var errStale = errors.New("the checkpoint was restored after this file was opened: open it again")

// errEnding says that a request was under way, or came, when the mount had to end.
var errEnding = errors.New("the mount has ended")

// errNoSpace says that scratch files and unfinished writes have filled their room.
var errNoSpace = errors.New("scratch files and unfinished checkpoints take all the room there is for them")

// errno says what a client gets for err, about the file name.
func (p *problems) errno(name string, err error) syscall.Errno {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, errStale):
		return syscall.ESTALE
	case err == errEnding:
		return syscall.ENOTCONN // as once the process has gone
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case errors.Is(err, growth.ErrNotYet), errors.Is(err, growth.ErrNoEpoch):
		return errnoNoEntry // look-ups are made again; status says what is missing
	}
	p.note(name, err)
	return syscall.EIO
}

// errnoName is what storage said, or, where it said nothing of the kind, what
// clients get.
func errnoName(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		if name := unix.ErrnoName(e); name != "" {
			return name
		}
	}
	return unix.ErrnoName(syscall.EIO)
}

// restoreErrno says what a writer of the control file gets for a restore that
// did not happen; its reason is in status.
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
		return syscall.EBUSY // on EAGAIN Go's os.File waits until the file can be written, for ever
	default:
		return errnoInvalid
	}
}

// renameErrno is restoreErrno for a rename onto the control file: EINVAL would
// say that the rename itself makes no sense.
func renameErrno(err error) syscall.Errno {
	if e := restoreErrno(err); e != errnoInvalid {
		return e
	}
	return syscall.EBADMSG
}

// isDead says whether err is what a mount of lsiofs answers whose server is
// gone: ENOTCONN, or for what was under way when it went, ECONNABORTED, EIO or, from rings,
// ECANCELED. A server that lives gives none of these to statfs.
func isDead(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECANCELED) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EIO)
}
