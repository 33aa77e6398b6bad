package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// listBatch is how many names are read from a directory at a time, so that a directory with
// millions of files is never held in memory whole.
const listBatch = 1024

// List calls visit for the regular files below the root, including those behind symbolic links to
// files and directories. Sockets, devices and pipes are skipped, as are files that disappear
// meanwhile, and links that lead back to a directory above them: Omitted returns these. A directory
// that can't be read, and a symbolic link to nothing, are errors, because files may be missing from
// the list. So are links that give the same directories many names.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	var listedBytes int64
	w := walk{ctx: ctx, root: s.root, never: s.files.never, match: match, pending: []directory{{}}, visit: func(o storage.Object) error {
		listedBytes += o.SizeBytes
		return visit(o)
	}}
	w.settling = w.systems.Young()
	for len(w.pending) > 0 {
		dir := w.pending[len(w.pending)-1]
		w.pending = w.pending[:len(w.pending)-1]
		if err := w.directory(dir); err != nil {
			return err
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	s.omitted.Store(&w.omitted)
	s.exceedsMemory.Store(listedBytes > cgroup.FreeBytes())
	return nil
}

// walk is one pass of List. Directories are queued, so the walk does not recurse.
type walk struct {
	ctx     context.Context // for the one call that this is
	root    string
	never   *filesystem.Never
	match   func(path string, isDir bool) bool
	visit   func(storage.Object) error
	pending []directory
	omitted []storage.Omission
	entered filesystem.Entered

	systems  filesystem.Systems
	settling *filesystem.Young
	young    []young // visited at the end
}

// directory is a directory that is still to be read.
type directory struct {
	path   string          // relative to the root, "" for the root
	above  *filesystem.Way // the way to its parent directory
	linked bool            // its name, or that of a directory above it, is a symbolic link
}

// young is a file that was changed so recently that another change may not show.
type young struct {
	path   string
	before filesystem.Attributes
}

func (w *walk) omit(path, reason string) {
	if len(w.omitted) < storage.MaxOmitted {
		w.omitted = append(w.omitted, storage.Omission{Path: path, Reason: reason})
	}
}

// Omitted implements storage.Caps.
func (s *Storage) Omitted() []storage.Omission {
	if list := s.omitted.Load(); list != nil {
		return *list
	}
	return nil
}

func (w *walk) directory(dir directory) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	f, err := w.open(dir)
	if err != nil {
		if dir.path != "" && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("list dataset: %w", err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("list dataset: %s: stat: %w", f.Name(), err)
	}
	is := filesystem.FromStat(&st)
	if dir.linked && dir.above.Has(is.Device, is.Inode) {
		w.match(dir.path, false)
		w.omit(dir.path+"/", storage.OmittedLoop)
		return nil
	}
	if dir.linked {
		if err := w.entered.Enter(is.Device, is.Inode); err != nil {
			return fmt.Errorf("list dataset: %s: %w", f.Name(), err)
		}
	}
	here := dir.above.Down(is.Device, is.Inode)
	for {
		entries, err := f.ReadDir(listBatch)
		for _, entry := range entries {
			if err := w.entry(dir, here, entry); err != nil {
				return err
			}
		}
		if err == io.EOF || dir.path != "" && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list dataset: %w", err)
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
	}
}

// open opens a directory.
func (w *walk) open(dir directory) (*os.File, error) {
	full := filepath.Join(w.root, dir.path)
	if !dir.linked {
		return os.Open(full)
	}
	return w.never.Open(full)
}

func (w *walk) entry(dir directory, here *filesystem.Way, entry fs.DirEntry) error {
	path := entry.Name()
	hidden := path[0] == '.'
	if dir.path != "" {
		path = dir.path + "/" + path
	}
	if hidden {
		if entry.IsDir() {
			path += "/"
		}
		w.omit(path, storage.OmittedHidden)
		return nil
	}
	full := filepath.Join(w.root, path)
	kind := entry.Type()
	linked := kind&fs.ModeSymlink != 0
	isDir, dead := kind.IsDir(), false
	if linked {
		to, err := filesystem.Stat(full)
		isDir = err == nil && to.Mode&unix.S_IFMT == unix.S_IFDIR
		dead = errors.Is(err, fs.ErrNotExist)
		if isDir && here.Has(to.Device, to.Inode) { // it leads back
			w.match(path, false) // reports that something exists there
			w.omit(path+"/", storage.OmittedLoop)
			return nil
		}
	}
	switch {
	case isDir:
		if w.match(path, true) {
			w.pending = append(w.pending, directory{path, here, dir.linked || linked})
		}
		return nil
	case !w.match(path, false) && !(dead && w.match(path, true)): // a dead link may have led to a directory
		return nil
	case !kind.IsRegular() && !linked:
		w.omit(path, storage.OmittedKind)
		return nil
	case linked:
		if err := w.never.Check(unix.AT_FDCWD, full); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("list dataset: %w", &fs.PathError{Op: "open", Path: full, Err: err})
		}
	}
	return w.file(path, nil, false)
}

// file describes a file and visits it, or keeps it for settle. before is what it was at the
// previous look, if there was one; at the last look it is not kept any more.
func (w *walk) file(path string, before *filesystem.Attributes, last bool) error {
	full := filepath.Join(w.root, path)
	from := time.Now()
	now, err := filesystem.Stat(full)
	if err != nil {
		link, lstatErr := os.Lstat(full)
		switch {
		case errors.Is(lstatErr, fs.ErrNotExist):
			return nil
		case lstatErr == nil && link.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("list dataset: follow symbolic link: %w: mend or remove the link, or leave it out with --exclude", err)
		}
		return fmt.Errorf("list dataset: %w", err)
	}
	if !now.Regular() {
		w.omit(path, storage.OmittedKind)
		return nil
	}
	traits := w.systems.Traits(unix.AT_FDCWD, full, now.Device)
	if w.settling.Add(&now, before, traits, from, time.Now()) {
		if !last {
			w.young = append(w.young, young{path, now})
			return nil
		}
		now.NeverMet()
	}
	return w.visit(describe(path, &now, traits))
}

// settle waits until a change of the young files would show, and visits them.
func (w *walk) settle() error {
	for len(w.young) > 0 {
		last, err := w.settling.Wait(w.ctx)
		if err != nil {
			return err
		}
		list := w.young
		w.young = nil
		for i := range list {
			if err := w.file(list[i].path, &list[i].before, last); err != nil {
				return err
			}
		}
	}
	return nil
}
