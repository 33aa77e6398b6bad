package fileset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// List calls visit for the directories that directly contain regular files. match is called twice
// for each directory: for whether it is accepted as an object, and for whether to enter it.
// Sockets, devices and pipes are skipped, as is anything that disappears meanwhile. A directory
// that can't be read, and a symbolic link to nothing, are errors, because files may be missing from
// the list. So are links that give directories two names, or many. Links to directories are
// followed, unless they lead back to a directory above them: Omitted returns these.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l := newListing(ctx, s, match)
	t, err := l.run(s.indexDir)
	if errors.Is(err, errNotKept) {
		l = newListing(ctx, s, match)
		t, err = l.run("")
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.table
	s.table, s.omitted = t, l.omitted
	t.hold()
	s.mu.Unlock()
	if old != nil {
		old.drop()
	}
	defer t.drop()
	for i := range t.count {
		if err := ctx.Err(); err != nil {
			return err
		}
		path, d, err := t.listed(i)
		if err != nil {
			return fmt.Errorf("list dataset: %w", err)
		}
		if err := visit(d.object(path)); err != nil {
			return err
		}
	}
	return nil
}

// listing is one pass over the directories, by several goroutines. Directories are queued, so the
// pass does not recurse.
type listing struct {
	ctx     context.Context // for the one call that this is
	storage *Storage
	match   func(path string, isDir bool) bool // nil: only one directory is listed
	matches sync.Mutex                         // held during match
	systems filesystem.Systems
	scratch *scratch
	looking chan struct{} // one for each goroutine that helps to stat the files of a large directory

	mu      sync.Mutex
	changed sync.Cond // signals changes of pending and busy
	pending []below
	omitted []storage.Omission
	entered filesystem.Entered
	busy    int // goroutines in a directory
	found   []found
	err     error
}

func newListing(ctx context.Context, s *Storage, match func(string, bool) bool) *listing {
	l := &listing{ctx: ctx, storage: s, match: match, looking: make(chan struct{}, s.most)}
	l.changed.L = &l.mu
	return l
}

// maxListers is how many directories are read at a time; each may wait for a disk.
const maxListers = 16

// run lists everything, and stores the table in dir.
func (l *listing) run(dir string) (*table, error) {
	var err error
	if l.scratch, err = newScratch(dir); err != nil {
		return nil, err
	}
	defer l.scratch.file.Close()
	l.pending = []below{{path: "."}}
	var all sync.WaitGroup
	for range min(maxListers, l.storage.most) {
		all.Go(l.work)
	}
	all.Wait()
	if l.err == nil {
		l.err = l.refuseTwice()
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.scratch.seal(l.found)
}

// work lists directories until there are none left.
func (l *listing) work() {
	g := gathering{listing: l}
	for {
		b, ok := l.next()
		if !ok {
			return
		}
		l.end(l.one(&g, b))
	}
}

// refuseTwice returns an error if a directory was reached both through a link and under another
// name. The paths in an object depend on the directory's name, so nothing else would show it.
func (l *listing) refuseTwice() error {
	type id struct{ device, inode uint64 }
	names := map[id]string{}
	for i := range l.found {
		if f := &l.found[i]; f.linked {
			at := id{f.device, f.inode}
			if other, twice := names[at]; twice {
				return l.twice(other, f.path)
			}
			names[at] = f.path
		}
	}
	if len(names) == 0 {
		return nil
	}
	for i := range l.found {
		if f := &l.found[i]; !f.linked {
			if other, twice := names[id{f.device, f.inode}]; twice {
				return l.twice(other, f.path)
			}
		}
	}
	return nil
}

func (l *listing) twice(a, b string) error {
	return fmt.Errorf("list dataset: %s and %s are one directory: remove one of them, or leave it out with --exclude or a pattern", min(a, b), max(a, b))
}

// below is a directory to read.
type below struct {
	path   string
	above  *filesystem.Way // the way to its parent directory
	linked bool            // its name, or that of a directory above it, is a symbolic link
}

func (l *listing) omit(path, reason string) {
	if l.match == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.omitted) < storage.MaxOmitted {
		l.omitted = append(l.omitted, storage.Omission{Path: path, Reason: reason})
	}
}

// enter counts a directory that is entered through a link.
func (l *listing) enter(device, inode uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entered.Enter(device, inode)
}

func (l *listing) next() (below, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) == 0 && l.busy > 0 && l.err == nil {
		l.changed.Wait()
	}
	n := len(l.pending)
	if n == 0 || l.err != nil {
		l.changed.Broadcast()
		return below{}, false
	}
	b := l.pending[n-1]
	l.pending = l.pending[:n-1]
	l.busy++
	return b, true
}

func (l *listing) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
}

// one lists a directory and stores the result.
func (l *listing) one(g *gathering, b below) error {
	path := b.path
	d, err := g.directory(b)
	switch {
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	case path != "." && (err == unix.ENOENT || err == unix.ENOTDIR):
		return nil // it is gone
	case err != nil:
		return fmt.Errorf("list dataset: %s: %w", filepath.Join(l.storage.root, path), err)
	}
	if len(g.dirs) > 0 {
		l.mu.Lock()
		l.pending = append(l.pending, g.dirs...)
		l.changed.Broadcast()
		l.mu.Unlock()
	}
	if d.files == 0 {
		return nil
	}
	at, err := l.scratch.put(d.bytes)
	if err != nil {
		return err
	}
	f := found{path: path, at: at, segment: d, device: g.device, inode: g.inode, linked: g.linked}
	f.segment.bytes = nil // reused for the next one
	l.mu.Lock()
	l.found = append(l.found, f)
	l.mu.Unlock()
	return nil
}

// wants calls match, which must not be called concurrently.
func (l *listing) wants(path string, isDir bool) bool {
	if l.match == nil {
		return !isDir
	}
	l.matches.Lock()
	defer l.matches.Unlock()
	return l.match(path, isDir)
}

// each calls f for subranges of 0 … n-1, on several goroutines if n is large; f may be called
// concurrently.
func (l *listing) each(n int, f func(from, to int) error) error {
	const stretch = 512
	var helpers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	run := func(from, to int) {
		if err := f(from, to); err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
	}
	for from := 0; from < n; from += stretch {
		to := min(from+stretch, n)
		if to < n {
			select {
			case l.looking <- struct{}{}:
				helpers.Go(func() {
					run(from, to)
					<-l.looking
				})
				continue
			default:
			}
		}
		run(from, to)
	}
	helpers.Wait()
	return errors.Join(errs...)
}

// A table on a disk is only as good as the disk: pages that were lost when the kernel wrote them
// come back as zeros, or can't be read at all (SIGBUS). So each block of what is stored there has a
// checksum in memory, and everything that a read relies on is compared with it. The data is copied
// before it is compared, because pages may disappear at any time.

// sumBytes is the size of a block: reading a file's words and its name takes one or two blocks
// each, at 0.1 µs per block. The sums take a 128th of the table's size.
const sumBytes = 1 << 10

// sumsOf returns the checksums of the blocks of b.
func sumsOf(b []byte) []uint64 {
	sums := make([]uint64, 0, (len(b)+sumBytes-1)/sumBytes)
	for len(b) > 0 {
		n := min(len(b), sumBytes)
		sums = append(sums, xxh3.Hash(b[:n]))
		b = b[n:]
	}
	return sums
}

var errListing = errors.New("the listing can't be read back as it was written")

// asPut reports whether the blocks of b that contain bytes from … to-1 are unchanged since they
// were stored.
func asPut(b []byte, sums []uint64, from, to uint64) bool {
	if sums == nil {
		return true // in memory
	}
	if from > to || to > uint64(len(b)) {
		return false
	}
	for at := from / sumBytes * sumBytes; at < to; at += sumBytes {
		if xxh3.Hash(b[at:min(at+sumBytes, uint64(len(b)))]) != sums[at/sumBytes] {
			return false
		}
	}
	return true
}

// sumsOf returns the checksums of a run in the table; nil if it is in memory.
func (t *table) sumsOf(p placed) []uint64 {
	if t.sums == nil {
		return nil
	}
	return t.sums[p.sum:][:(p.bytes+sumBytes-1)/sumBytes]
}

// check compares part of a run with its checksums.
func (t *table) check(p placed, from, to uint64) error {
	if !asPut(t.data[p.at:][:p.bytes], t.sumsOf(p), from, to) {
		return t.damaged()
	}
	return nil
}

func (t *table) damaged() error {
	return fmt.Errorf("%w to %s: mount again, with another --index-dir if that disk fails", errListing, t.dir)
}

// caught turns a fault in the table into an error of the function that defers it. It must be
// deferred itself.
func (t *table) caught(err *error) {
	p := recover()
	if p == nil {
		return
	}
	if !storage.IsFault(p) {
		panic(p) // a bug of ours
	}
	*err = t.damaged()
}

// lookUp returns a file of a directory, as it was listed, and sets path to its path.
func (o *opener) lookUp(t *table, g *segment, i int) (f file, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.caught(&err)
	f = g.file(i)
	names := g.names()
	if f.nameFrom > f.nameTo || f.nameTo > uint64(len(names)) {
		return f, t.damaged()
	}
	o.at(names[f.nameFrom:f.nameTo])
	words := uint64(g.files) * fileBytes
	if !asPut(g.bytes, g.sums, uint64(max(i-1, 0))*fileBytes, uint64(min(i+2, g.files))*fileBytes) ||
		!asPut(g.bytes, g.sums, words+f.nameFrom, words+f.nameTo) {
		return f, t.damaged()
	}
	return f, nil
}

// locate returns the numbers of the first file that overlaps a range of the object, and of the one
// after the last, unchecked. The files near and near+1 are tried before a search; near is -1 if
// there is no guess.
func (t *table) locate(g *segment, off, size int64, near int) (from, to int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.caught(&err)
	has := func(i int) bool { f := g.file(i); return f.offset <= off && off < f.end }
	switch {
	case near >= 0 && has(near):
		from = near
	case near >= 0 && near+1 < g.files && has(near+1):
		from = near + 1
	default:
		from = g.at(off)
	}
	if from < 0 {
		return 0, 0, t.damaged()
	}
	for to = from + 1; to < g.files && g.offset(to) < off+size; {
		to++
	}
	return from, to, nil
}
