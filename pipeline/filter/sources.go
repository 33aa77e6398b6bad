package filter

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// sources follows the files below SRC. It is not for concurrent use.
type sources struct {
	storage  storage.Storage
	root     string
	settling growing.Settling
	files    map[string]*file
}

// file is a file below SRC.
type file struct {
	object  storage.Object
	settled bool
	written int // looks in a row, up to the last one, that found somebody writing it
	again   time.Time
	done    bool             // its result is there, or it is no shard
	damaged *growing.Damaged // it has failed as it is
	look    growing.Look
}

func newSources(s storage.Storage, root string, settle time.Duration) *sources {
	network := false
	if f, err := os.Open(root); err == nil {
		network = filesystem.Of(int(f.Fd())).Remote
		_ = f.Close()
	}
	return &sources{storage: s, root: root, settling: growing.Settling{Quiet: quiet(settle, network)}, files: map[string]*file{}}
}

// list looks which files there are. Those that are as they were keep what is known of them.
func (s *sources) list(ctx context.Context) error {
	there := make(map[string]*file, len(s.files))
	err := s.storage.List(ctx, func(path string, isDir bool) bool { return isDir || growing.Finished(path) }, func(o storage.Object) error {
		f := s.files[o.Path]
		if f == nil || storage.Compare(f.object, o) != nil {
			next := &file{object: o}
			if f != nil {
				next.damaged = f.damaged
			}
			f = next
		}
		there[o.Path] = f
		return nil
	})
	if err != nil {
		return err
	}
	for path := range s.files {
		if there[path] == nil {
			s.settling.Forget(path)
		}
	}
	s.files = there
	return nil
}

// looksAtWriters is how many looks, a second apart, find that somebody is writing a file
// before it is not waited for. At the first its writer may just have closed it: a program
// that he has started meanwhile has the file, too, until it begins.
const looksAtWriters = 2

// settle looks at the files that are not settled. With patience it goes on until only
// those are left that somebody goes on writing; without, wait is when the next look may tell
// more, 0 where no file is left.
func (s *sources) settle(ctx context.Context, patience bool) (wait time.Duration, err error) {
	for {
		now := time.Now()
		wait = 0
		for _, f := range s.files {
			if f.settled || patience && f.written >= looksAtWriters {
				continue
			}
			if now.Before(f.again) {
				wait = sooner(wait, f.again.Sub(now))
				continue
			}
			more, err := s.see(ctx, f, now)
			if err != nil {
				return 0, err
			}
			if more > 0 && !(patience && f.written >= looksAtWriters) {
				wait = sooner(wait, more)
			}
		}
		if !patience || wait == 0 {
			return wait, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return 0, err
		}
	}
}

// sooner is the lesser of two times, of which the first may be 0: none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// see looks at one file.
func (s *sources) see(ctx context.Context, f *file, now time.Time) (wait time.Duration, err error) {
	path := f.object.Path
	o, err := s.storage.Stat(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		delete(s.files, path)
		s.settling.Forget(path)
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	f.object = o
	f.look = growing.Look{SizeBytes: o.SizeBytes, ModTimeNanos: o.Version.ModTimeNanos, Inode: o.Version.Inode}
	f.look.Written, f.look.Unknown = written(filepath.Join(s.root, path))
	if f.written++; !f.look.Written {
		f.written = 0
	}
	f.settled, wait = s.settling.See(path, f.look, now)
	f.again = now.Add(wait)
	return wait, nil
}

// written says whether somebody has a file open for writing, or that this can't be told.
// Asking for a lease tells it (fcntl(2), F_SETLEASE); the lease is given back at once.
func written(path string) (written, unknown bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return errors.Is(err, unix.EWOULDBLOCK), true
	}
	defer func() { _ = unix.Close(fd) }()
	if !filesystem.Of(fd).Watched {
		return false, true
	}
	switch _, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); {
	case errors.Is(err, unix.EAGAIN):
		return true, false
	case err != nil:
		return false, true
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return false, false
}

// settled are the files that are settled, by path.
func (s *sources) settled() (objects []storage.Object) {
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		if f := s.files[path]; f.settled {
			objects = append(objects, f.object)
		}
	}
	return objects
}

// unsettled says how many files are not settled, and names one.
func (s *sources) unsettled() (n uint64, one string) {
	for path, f := range s.files {
		if !f.settled {
			n++
			if one == "" || path < one {
				one = path
			}
		}
	}
	return n, one
}

// wanted says whether a settled file is to be looked into now.
func (s *sources) wanted(path string, now time.Time) bool {
	f := s.files[path]
	return f != nil && !f.done && (f.damaged == nil || f.damaged.Again(f.look, now))
}

// end notes what has become of a file: nil for what needs no more. It says whether a
// failure is news.
func (s *sources) end(path string, failure *Failure, now time.Time) (news bool) {
	f := s.files[path]
	switch {
	case f == nil:
		return failure != nil
	case failure == nil:
		f.done, f.damaged = true, nil
		return false
	case errors.Is(failure, errChanged):
		*f = file{object: f.object, damaged: f.damaged} // it is to settle once more
		return false
	}
	if f.damaged == nil {
		f.damaged = &growing.Damaged{}
	}
	return f.damaged.See(f.look, now)
}

// only is a storage that lists some of its objects.
type only struct {
	storage.Storage
	objects []storage.Object
}

// List implements storage.Storage.
func (s only) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	for _, o := range s.objects {
		if !match(o.Path, false) {
			continue
		}
		if err := errors.Join(ctx.Err(), visit(o)); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits, and fails when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
