// Package hardlink implements a storage in a directory whose files can still be read after they were
// deleted or replaced: for each file that is held, it makes a hard link inside the dataset.
//
//	DATASET/a.tar                            what was listed
//	DATASET/.lsiofs/hold/<run>/<64 hex>      the same file, by another name
//
// A read tries the path first. If that is gone, or is another file now, it reads the link, if the
// link has the size, modification time and inode that were listed. A file that is written to in
// place is not protected: the link is the same file.
//
// Making a link changes a file's change time (ctime), so versions here have none.
package hardlink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// Storage is a local storage that falls back to links.
type Storage struct {
	*local.Storage
	links *Links
}

var _ storage.Storage = (*Storage)(nil)

// Wrap returns a storage over s, from which nothing may have been read yet. Its Close closes s.
func Wrap(s *local.Storage, l *Links) *Storage {
	s.AlsoUnder(func(o storage.Object) []string { return l.of(o.Path) })
	return &Storage{s, l}
}

// Caps implements storage.Storage. All ways to read a file fall back to its links.
func (s *Storage) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.StatStable, c.Uncached = s.StatStable, s.Uncached
	return c
}

// Uncached implements storage.Caps.
func (s *Storage) Uncached() (storage.Storage, error) {
	u, err := s.Storage.OpenUncached()
	if err != nil {
		return nil, err
	}
	return Wrap(u, s.links), nil
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	return s.Storage.List(ctx, match, func(o storage.Object) error { return visit(lasting(o)) })
}

// Stat implements storage.Storage. If a file is gone it describes the newest link.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.Storage.Stat)
}

// StatStable implements storage.Caps; see Stat.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.Storage.StatStable)
}

func (s *Storage) describe(ctx context.Context, path string, ask func(context.Context, string) (storage.Object, error)) (storage.Object, error) {
	o, err := ask(ctx, path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return lasting(o), err
	}
	for _, name := range s.links.below(path) {
		if linked, failed := ask(ctx, name); failed == nil {
			linked.Path = path
			return lasting(linked), nil
		}
	}
	return o, err
}

// lasting returns an object without the fields that a link to it changes.
func lasting(o storage.Object) storage.Object {
	o.Version.ChangeTimeNanos = 0
	return o
}

// Line is a file to hold. Text identifies its state: it is a line of a snapshot, and no other state
// has the same. Its SHA-256 is the link's name.
type Line struct{ Path, Text string }

type sum = [sha256.Size]byte

// link is one hard link. Its name is the sum; for a further file with the same line, which was
// written again, it is followed by the inode.
type link struct {
	sum   sum
	inode uint64 // 0: the first one
}

// Links are the links of one run. They hold nothing before Use. The methods may be called
// concurrently. They take about 150 bytes of memory per link.
type Links struct {
	root  string
	young time.Duration // links made more recently than this are not removed

	mu   sync.Mutex
	dir  string            // "" before Use
	has  map[link]struct{} // links that exist
	more map[sum][]link    // those in has with an inode
	path map[string][]link // of each file, the newest last
}

// NewLinks returns the links of the dataset below root, an absolute path.
func NewLinks(root string) *Links {
	return &Links{root: root, young: time.Hour, more: map[sum][]link{}, path: map[string][]link{}}
}

// Use sets the run whose links these are: each run has its own. It creates their directory, and
// finds the links that already exist. A second call does nothing.
func (l *Links) Use(run string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dir != "" {
		return nil
	}
	dir := filepath.Join(l.root, ".lsiofs", "hold", run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("hold shards: %w: --hold makes hard links in the dataset, which has to be writable", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("hold shards: %w", err)
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(0)
	if err != nil {
		return fmt.Errorf("hold shards: %w", err)
	}
	l.has = make(map[link]struct{}, len(names))
	for _, name := range names {
		if x, ok := parseLink(name); ok {
			l.there(x)
		}
	}
	l.dir = dir
	return nil
}

func (x link) name() string {
	name := hex.EncodeToString(x.sum[:])
	if x.inode != 0 {
		name += fmt.Sprintf("-%d", x.inode)
	}
	return name
}

func parseLink(name string) (x link, ok bool) {
	digits, inode, further := strings.Cut(name, "-")
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != len(sum{}) {
		return x, false
	}
	if x.sum = sum(b); further {
		x.inode, err = strconv.ParseUint(inode, 10, 64)
	}
	return x, err == nil && x.name() == name
}

// there records a link that exists. mu is held.
func (l *Links) there(x link) {
	if _, ok := l.has[x]; !ok && x.inode != 0 {
		l.more[x.sum] = append(l.more[x.sum], x)
	}
	l.has[x] = struct{}{}
}

func (l *Links) name(x link) string { return filepath.Join(l.dir, x.name()) }

// Hold makes the missing links, and makes reads fall back to them. A file that is gone is skipped.
// If the link is to another file than the path is now, that file is held as well: it may be the
// shard, written again, or another one, and then only the first link is left of the shard.
func (l *Links) Hold(ctx context.Context, lines []Line) error {
	for _, line := range lines {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !filepath.IsLocal(line.Path) {
			return fmt.Errorf("hold %s: %w", line.Path, fs.ErrInvalid)
		}
		if err := l.hold(line.Path, sha256.Sum256([]byte(line.Text))); err != nil {
			return fmt.Errorf("hold shards: %w: --hold makes hard links in the dataset, which has to be writable, and on one file system", err)
		}
	}
	return nil
}

// Has reports whether there is a link for a line, made by Hold, as far as this process knows.
func (l *Links) Has(line Line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := sha256.Sum256([]byte(line.Text))
	_, ok := l.has[link{sum: s}]
	return ok || len(l.more[s]) > 0
}

func (l *Links) hold(path string, s sum) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dir == "" {
		return errors.New("no run is known yet")
	}
	from, x := filepath.Join(l.root, path), link{sum: s}
	if _, ok := l.has[x]; ok {
		l.add(path, x)
		for _, further := range l.more[s] {
			l.add(path, further)
		}
		there, err := os.Stat(from)
		if err != nil {
			return nil // it is gone, and held
		}
		held, err := os.Lstat(l.name(x))
		switch {
		case err == nil && os.SameFile(there, held):
			return nil
		case err == nil:
			x.inode = there.Sys().(*syscall.Stat_t).Ino
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	full, err := filepath.EvalSymlinks(from) // if it is a link, hold its target
	if err == nil {
		err = os.Link(full, l.name(x))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	l.there(x)
	l.add(path, x)
	return nil
}

// add makes a path fall back to a link, before its other links. mu is held.
func (l *Links) add(path string, s link) {
	list := l.path[path]
	if n := len(list); n > 0 && list[n-1] == s {
		return
	}
	l.path[path] = append(slices.DeleteFunc(list, func(x link) bool { return x == s }), s)
}

// below returns the links of a path, relative to the dataset, the newest first.
func (l *Links) below(path string) (names []string) {
	for _, name := range l.of(path) {
		if below, err := filepath.Rel(l.root, name); err == nil {
			names = append(names, below)
		}
	}
	return names
}

// of returns the links of a path, absolute, the newest first.
func (l *Links) of(path string) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Backward(l.path[path]) {
		names = append(names, l.name(s))
	}
	return names
}

// Kept is a set of lines.
type Kept map[sum]struct{}

// Add adds a line to the set.
func (k Kept) Add(text string) { k[sha256.Sum256([]byte(text))] = struct{}{} }

// Keep removes all links that are not in a set, except links of the last hour, which another node
// may just have made for an epoch that it is starting. It returns how many it has removed.
func (l *Links) Keep(kept Kept) (removed int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.has {
		if _, ok := kept[s.sum]; ok {
			continue
		}
		var st unix.Stat_t // a link is made at its file's change time, or before
		if unix.Lstat(l.name(s), &st) == nil && time.Since(time.Unix(st.Ctim.Unix())) < l.young {
			continue
		}
		if failed := os.Remove(l.name(s)); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = failed
			continue
		}
		delete(l.has, s)
		removed++
	}
	for s := range l.more {
		if l.more[s] = slices.DeleteFunc(l.more[s], func(x link) bool { _, ok := l.has[x]; return !ok }); len(l.more[s]) == 0 {
			delete(l.more, s)
		}
	}
	if removed > 0 {
		for path, list := range l.path {
			if list = slices.DeleteFunc(list, func(s link) bool { _, ok := l.has[s]; return !ok }); len(list) == 0 {
				delete(l.path, path)
			} else {
				l.path[path] = list
			}
		}
	}
	return removed, err
}
