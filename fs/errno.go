package fs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/checkpoint"
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
)

// errStale says that a handle is of a view that a restore has replaced.
var errStale = errors.New("the checkpoint was restored after this file was opened: open it again")

// errEnding says that a request was under way, or came, when the mount had to end.
var errEnding = errors.New("the mount has ended")

// errNoSpace says that scratch files and unfinished writes have filled their room.
var errNoSpace = errors.New("scratch files and unfinished checkpoints take all the room there is for them")

// problems turns errors of reads and look-ups into errno, logs them at a
// bounded rate, and keeps the last few for status.
type problems struct {
	log *slog.Logger

	mu         sync.Mutex
	last       []problem
	total      uint64
	window     time.Time
	logged     int
	suppressed uint64
}

// problem is an error that a client got as EIO.
type problem struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// A shard that is gone can fail thousands of reads a second: problemLines lines
// a problemWindow are logged, and problemsKept texts are kept.
const (
	problemsKept  = 8
	problemLines  = 5
	problemWindow = 10 * time.Second
)

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
	}
	p.note(name, err)
	return syscall.EIO
}

func (p *problems) note(name string, err error) {
	now, text := time.Now(), name+": "+err.Error()
	p.mu.Lock()
	p.total++
	if len(p.last) == problemsKept {
		p.last = append(p.last[:0], p.last[1:]...)
	}
	p.last = append(p.last, problem{now, text})
	if now.Sub(p.window) >= problemWindow {
		p.window, p.logged = now, 0
	}
	p.logged++
	write := p.logged <= problemLines
	suppressed := p.suppressed
	if write {
		p.suppressed = 0
	} else {
		p.suppressed++
	}
	p.mu.Unlock()
	switch {
	case write && suppressed > 0:
		p.log.Error("a read failed", "error", text, "not_logged_before", suppressed)
	case write:
		p.log.Error("a read failed", "error", text)
	}
}

// snapshot gives the kept problems, oldest first, and the number of all.
func (p *problems) snapshot() ([]problem, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]problem(nil), p.last...), p.total
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
// gone: ENOTCONN, or for what was under way when it went, ECONNABORTED or EIO.
// A server that lives gives none of these to statfs.
func isDead(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EIO)
}
