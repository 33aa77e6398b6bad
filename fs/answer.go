package fs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrSilent means that a file system does not answer.
var ErrSilent = errors.New("it does not answer")

// How long a mount has to answer: longer than a very busy machine takes, but less if its server is
// seen to be stopped.
const (
	answerTime  = 12 * time.Second
	stoppedTime = 2 * time.Second
	answerLook  = 50 * time.Millisecond
)

// Answers waits until the file system that path is on responds, even with an error. If it does not,
// the returned error names the server that has stopped, and wraps ErrSilent: any other access to
// the path would hang until the server resumes.
func Answers(ctx context.Context, path string) error {
	return answers(ctx, path, stoppedTime, answerTime)
}

// answers is Answers. From soon on it gives up if the server is seen to be stopped, and after bound
// in any case.
func answers(ctx context.Context, path string, soon, bound time.Duration) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	answered := asked(path)
	begin := time.Now()
	look := time.NewTicker(answerLook)
	defer look.Stop()
	for {
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		waited := time.Since(begin)
		if waited < soon {
			continue
		}
		look.Reset(max(soon, answerLook))
		if err := silence(path, bound); waited >= bound || errors.Is(err, errStopped) {
			return err
		}
	}
}

// asked returns a channel that is closed when the file system that path is on has responded, even
// with an error.
func asked(path string) <-chan struct{} {
	answered := make(chan struct{})
	go func() { // ends with the process at the latest
		var st unix.Statfs_t
		_ = unix.Statfs(path, &st)
		close(answered)
	}()
	return answered
}

// When Await first reports what it is waiting for, and how often after that.
const (
	awaitFirst = 3 * time.Second
	awaitAgain = 30 * time.Second
)

// Await waits until the file system that path is on answers, or until ctx ends. If that takes some
// seconds, it calls tell with the reason, and again from time to time.
func Await(ctx context.Context, path string, tell func(reason error)) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	answered := asked(path)
	begin := time.Now()
	next := time.NewTimer(awaitFirst)
	defer next.Stop()
	for {
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
			tell(silence(path, time.Since(begin).Round(time.Second)))
			next.Reset(awaitAgain)
		}
	}
}

// errStopped is ErrSilent for a server that is stopped.
var errStopped = fmt.Errorf("%w: its server is stopped", ErrSilent)

// silence returns what is known about why a path does not answer.
func silence(path string, waited time.Duration) error {
	m, found := holding(path)
	if !found {
		return fmt.Errorf("%s: %w for %v: the server of its file system may be unreachable; try again when ls %s answers", path, ErrSilent, waited, path)
	}
	s := FindServer(m)
	if s == nil {
		return fmt.Errorf("%s: %w for %v: its server is not visible from here and may be stopped (docker pause, SIGSTOP); lsiofs umount --lazy %s removes the mount", m.Point, ErrSilent, waited, m.Point)
	}
	defer s.Close()
	if s.Stopped() {
		return fmt.Errorf("%s: %w (process %d, by SIGSTOP or Ctrl-Z): kill -CONT %d resumes it; lsiofs umount --lazy %s removes the mount", m.Point, errStopped, s.PID, s.PID, m.Point)
	}
	return fmt.Errorf("%s: %w for %v: its server is process %d, which may be paused or overloaded; lsiofs umount --lazy %s removes the mount", m.Point, ErrSilent, waited, s.PID, m.Point)
}

// holding returns the mount of lsiofs that contains path, which must be absolute. It goes by the
// name alone.
func holding(path string) (MountEntry, bool) {
	mounts, err := Mounts()
	if err != nil {
		return MountEntry{}, false
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if m, found := TopMount(mounts, dir); found {
			return m, m.Type == FileSystemType
		}
		if dir == "/" {
			return MountEntry{}, false
		}
	}
}
