package filter

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// sources are the files below SRC, for a run that looks at them once; arrivals is the counterpart
// for Watch. It must not be used concurrently.
type sources struct {
	storage  storage.Storage
	root     string
	settling discover.Settling
	files    map[string]*file
	omitted  []storage.Omission // during the last list
}

// file is a file below SRC.
type file struct {
	object  storage.Object
	settled bool
	written int // number of consecutive looks, up to the last, that found it being written
	again   time.Time
}

func newSources(s storage.Storage, root string, settle time.Duration) *sources {
	network := false
	if f, err := os.Open(root); err == nil {
		network = uring.TraitsOf(int(f.Fd())).Remote
		_ = f.Close()
	}
	return &sources{storage: s, root: root, settling: discover.Settling{Quiet: quiet(settle, network)}, files: map[string]*file{}}
}

// list finds the existing files, except those for which isResult is true.
func (s *sources) list(ctx context.Context, isResult func(path string) bool) error {
	s.omitted = nil
	err := s.storage.List(ctx, func(path string, isDir bool) bool {
		if isDir || discover.Finished(path) {
			return !isResult(path)
		}
		if len(s.omitted) < storage.MaxOmitted {
			s.omitted = append(s.omitted, storage.Omission{Path: path, Reason: discover.UnfinishedReason})
		}
		return false
	}, func(o storage.Object) error {
		s.files[o.Path] = &file{object: o}
		return nil
	})
	s.omitted = append(s.omitted, storage.OmittedBy(s.storage)...)
	return err
}

// looksAtWriters is how many looks, a second apart, must find a file being written before it is no
// longer waited for. At the first look its writer may just have closed it: a program that the
// writer started meanwhile still has the file open until its exec.
const looksAtWriters = 2

// settle looks at the files until the only unsettled ones are those that are still being written.
func (s *sources) settle(ctx context.Context) error {
	for {
		now, wait := time.Now(), time.Duration(0)
		for _, f := range s.files {
			if f.settled || f.written >= looksAtWriters {
				continue
			}
			if now.Before(f.again) {
				wait = sooner(wait, f.again.Sub(now))
				continue
			}
			more, err := s.see(ctx, f, now)
			if err != nil {
				return err
			}
			if more > 0 && f.written < looksAtWriters {
				wait = sooner(wait, more)
			}
		}
		if wait == 0 {
			return nil
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// sooner returns the lesser of two durations; 0 in the first means none.
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
	look := lookOf(o)
	look.Written, look.Unknown = filesystem.Written(filepath.Join(s.root, path))
	if f.written++; !look.Written {
		f.written = 0
	}
	f.settled, wait = s.settling.See(path, look, now)
	f.again = now.Add(wait)
	return wait, nil
}

// settled returns the settled files, by path.
func (s *sources) settled() (objects []storage.Object) {
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		if f := s.files[path]; f.settled {
			objects = append(objects, f.object)
		}
	}
	return objects
}

// unsettled returns the number of unsettled files, and the name of one.
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

func lookOf(o storage.Object) discover.Look {
	return discover.Look{SizeBytes: o.SizeBytes, ModTimeNanos: o.Version.ModTimeNanos, Inode: o.Version.Inode}
}

// only is a storage that lists just some of its objects, and has the names that were left out
// before.
type only struct {
	storage.Storage
	objects []storage.Object
	omitted []storage.Omission
}

// Caps implements storage.Storage.
func (s only) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.Omitted = func() []storage.Omission { return s.omitted }
	return c
}

// List implements storage.Storage.
func (s only) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	entered := map[string]bool{"": true, ".": true}
	var enters func(dir string) bool
	enters = func(dir string) bool {
		yes, asked := entered[dir]
		if !asked {
			yes = enters(parentOf(dir)) && match(dir, true)
			entered[dir] = yes
		}
		return yes
	}
	for _, o := range s.objects {
		if !enters(parentOf(o.Path)) || !match(o.Path, false) {
			continue
		}
		if err := errors.Join(ctx.Err(), visit(o)); err != nil {
			return err
		}
	}
	return nil
}

// parentOf returns the directory of a path, "" for the root.
func parentOf(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

// sleep waits for d; it returns an error if ctx ends.
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
