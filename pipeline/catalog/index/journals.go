package index

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// Journals is the stored index of a dataset that grows: an unbounded sequence of journals, from
// which those are dropped that no longer contain anything used. Each process writes to its own
// journals and reads those of the others; those of dead processes become its own.
//
//	j := store.OpenJournals(formats, visit)   // every known shard
//	j.Begin(format)                           // the format of new shards
//	j.Append(shard)  ─► Place                 // written when it returns: it survives a kill
//	j.Drop(place)                             // it is no longer used
//	j.Sparse() ─► Segment, Append its live shards, j.Retire(segment)
//
// It is safe for concurrent use.
type Journals struct {
	store *Store

	mu       sync.Mutex
	head     []byte
	active   *Segment
	segments []*Segment
	readers  int
	failed   bool      // the directory could not be written
	again    time.Time // when it will be tried again
}

// retryDirectory is the delay after which an unwritable directory is tried again, since space may
// be freed on a full disk.
const retryDirectory = time.Minute

// OpenJournals opens the existing journals and calls visit for each shard, with the format by which
// it was cut, one of formats. It may visit a path more than once. Journals of other formats are
// ignored.
func (s *Store) OpenJournals(formats []string, visit func(format string, p Place, k Shard)) *Journals {
	j := &Journals{store: s}
	s.clean(".tmp")
	for _, path := range s.snapshots() {
		j.openImage(path, true, formats, visit)
	}
	j.openImage(s.path("index"), false, formats, visit)
	own := s.abandoned(".journal")
	mine := map[string]bool{}
	for _, f := range own {
		mine[f.Name()] = true
	}
	for _, path := range s.files(s.name+".", ".journal") {
		if mine[path] {
			continue
		}
		if f, err := s.openStored(path); err == nil {
			j.openJournal(f, false, formats, visit)
		}
	}
	for _, f := range own { // last, so that they take precedence for shards in several journals
		j.openJournal(f, true, formats, visit)
	}
	return j
}

func (j *Journals) openImage(path string, snapshot bool, formats []string, visit func(string, Place, Shard)) {
	if j.store.dir == "" {
		return
	}
	i, err := j.store.loadFile(path)
	if err != nil {
		return // it is rebuilt when needed
	}
	format := i.Format()
	if !slices.Contains(formats, format) {
		_ = i.Close()
		return
	}
	g := &Segment{image: i, snapshot: snapshot, m: &mapping{data: i.data}}
	g.imageEntries(func(p Place, s Shard) { j.found(format, p, s, visit) })
	j.segments = append(j.segments, g)
}

func (j *Journals) openJournal(f *os.File, own bool, formats []string, visit func(string, Place, Shard)) {
	m, err := j.store.mapJournal(f, own)
	if err != nil {
		_ = f.Close()
		return
	}
	if own && outdated(m.data) {
		_ = os.Remove(f.Name())
	}
	g := &Segment{m: m, bytes: int64(len(m.data))}
	g.capacity = g.bytes
	if own {
		g.f = f
	} else {
		_ = f.Close()
	}
	for _, format := range formats {
		if g.entries(j.store.journalHead(format), func(p Place, s Shard) { j.found(format, p, s, visit) }) == nil {
			j.segments = append(j.segments, g)
			return
		}
	}
	g.close()
}

func (j *Journals) found(format string, p Place, s Shard, visit func(string, Place, Shard)) {
	p.segment.live.Add(entryBytes(s.Object.Path, p.bytes))
	visit(format, p, s)
}

// Begin sets the format of the shards that will be appended.
func (j *Journals) Begin(format string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.head = j.store.journalHead(format)
}

// Append stores a shard. If the directory can't be written, the shard is kept in memory, which is
// logged, and the directory is tried again periodically.
func (j *Journals) Append(s Shard) (Place, error) {
	head := marshalEntryHead(s)
	n := int64(len(head) + len(s.Blob))
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		if j.active == nil || !j.active.fits(n) || j.failed && j.writable() {
			if err := j.rotate(n); err != nil {
				return Place{}, err
			}
		}
		g := j.active
		data := [][]byte{head, s.Blob}
		if n < journalBufferBytes {
			data = [][]byte{append(head, s.Blob...)}
		}
		if err := g.write(data...); err != nil {
			j.warn(err)
			j.active = nil
			continue
		}
		g.live.Add(n)
		return Place{g, uint64(g.bytes) - uint64(len(s.Blob)), uint32(len(s.Blob))}, nil
	}
}

// writable reports whether to try the directory.
func (j *Journals) writable() bool {
	return j.store.dir != "" && (!j.failed || !time.Now().Before(j.again))
}

// rotate begins the next journal.
func (j *Journals) rotate(room int64) error {
	var g *Segment
	err := errNoDir
	if j.writable() {
		if g, err = j.store.newSegment(j.head, room); err != nil {
			j.warn(err)
		} else if j.failed {
			j.failed = false
			j.store.log.Info("index directory is writable again: what was kept in memory is written there", "dir", j.store.dir)
		}
	}
	if err != nil {
		if j.active != nil && j.active.fits(room) {
			return nil // continue with the one in memory
		}
		if g, err = memorySegment(room); err != nil {
			return err
		}
	}
	j.active = g
	j.segments = append(j.segments, g)
	return nil
}

// warn notes that the directory can't be written, and logs it once until it can.
func (j *Journals) warn(err error) {
	j.again = time.Now().Add(retryDirectory)
	if j.failed {
		return
	}
	j.failed = true
	j.store.log.Warn("index directory can't be written: the index of new shards is kept in memory, and built again by the next run unless the directory is writable by then; free space there or name another with --index-dir",
		"dir", j.store.dir, "error", err)
}

// Drop reports that the shard of that path at p is no longer used.
func (j *Journals) Drop(p Place, path string) {
	if p.segment != nil {
		p.segment.live.Add(-entryBytes(path, p.bytes))
	}
}

// Size returns how many bytes this process's own journals take, how many of these are used, and the
// number of journals.
func (j *Journals) Size() (bytes, live int64, journals int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size()
}

func (j *Journals) size() (bytes, live int64, journals int) {
	for _, g := range j.segments {
		if g.owned() && !g.retired {
			bytes, live, journals = bytes+g.bytes, live+g.live.Load(), journals+1
		}
	}
	return bytes, live, journals
}

// owned reports whether this process may remove the segment.
func (g *Segment) owned() bool { return g.image == nil && (g.f != nil || g.copied) }

const (
	// Journals may hold as many unused bytes as used ones, and this many more.
	spareBytes = 2 * segmentCapacity
	// There may be this many more journals than necessary, left by processes that were ended early.
	spareJournals = 16
)

// Sparse returns a journal that should be emptied and retired: one of which nothing is used, or one
// in memory if the directory can be written again; otherwise, if this process's journals hold too
// many unused bytes, the one with the smallest used fraction, or, if they are too many, the one
// with the fewest used bytes. It returns nil if there is nothing to do. Append does not write to
// the returned journal afterwards.
func (j *Journals) Sparse() *Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	bytes, live, journals := j.size()
	var worst *Segment
	for _, g := range j.segments {
		if g.retired {
			continue // it is freed after the last reader
		}
		if g.live.Load() == 0 && g != j.active {
			return g
		}
		if !g.owned() {
			continue
		}
		if g.f == nil && j.store.dir != "" && !j.failed {
			return g
		}
		if worst == nil || g.live.Load()*worst.bytes < worst.live.Load()*g.bytes || g.live.Load() == worst.live.Load() && g.bytes < worst.bytes {
			worst = g
		}
	}
	crowded := bytes > 2*live+spareBytes
	if many := int64(journals) > 2*live/segmentCapacity+spareJournals; many && !crowded {
		worst = j.smallest()
	} else if !crowded {
		return nil
	}
	if worst == j.active {
		j.active = nil
	}
	return worst
}

// smallest returns the journal of this process with the fewest used bytes.
func (j *Journals) smallest() (s *Segment) {
	for _, g := range j.segments {
		if g.owned() && !g.retired && g != j.active && (s == nil || g.live.Load() < s.live.Load()) {
			s = g
		}
	}
	return s
}

// Retire removes a journal of which nothing is used any more.
func (j *Journals) Retire(g *Segment) {
	if g.f != nil {
		_ = os.Remove(g.f.Name())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	g.retired = true
	j.free()
}

// Acquire keeps blobs valid until Release.
func (j *Journals) Acquire() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.readers++
}

// Release must be called once for each Acquire.
func (j *Journals) Release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.readers--
	j.free()
}

// free closes retired segments if there are no readers. mu must be held.
func (j *Journals) free() {
	if j.readers > 0 {
		return
	}
	j.segments = slices.DeleteFunc(j.segments, func(g *Segment) bool {
		if g.retired {
			g.close()
		}
		return g.retired
	})
}

// Close frees everything. Journals remain for the next run, except for those of which nothing is
// used. No blob may be used afterwards.
func (j *Journals) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range j.segments {
		if g.f != nil && (g.retired || g.live.Load() == 0) {
			_ = os.Remove(g.f.Name())
		}
		g.close()
	}
	j.segments, j.active = nil, nil
}

// segmentCapacity is the size of a growing dataset's journal at which the next one is begun. A
// single blob may be larger.
const segmentCapacity = 32 << 20

// Segment is a file that contains Places: a journal, or a sealed index.
type Segment struct {
	f        *os.File // locked, if it is this process's own; nil for others, and in memory
	m        *mapping // of capacity bytes, of which bytes are written
	copied   bool     // data written to f must be copied to m
	capacity int64
	bytes    int64 // whole entries
	image    *Image
	snapshot bool         // the image is a snapshot's, which will soon be removed
	live     atomic.Int64 // bytes of entries in use
	retired  bool
}

// Place is the location of a shard's blob. The zero Place refers to nothing.
type Place struct {
	segment *Segment
	at      uint64
	bytes   uint32
}

// In reports whether the place is in a segment.
func (p Place) In(s *Segment) bool { return p.segment == s }

// Blob returns the blob at the place. It is valid until the segment is retired and has no readers
// (Journals.Acquire), or the journals are closed.
func (p Place) Blob() Blob {
	return Blob(p.segment.m.data[p.at : p.at+uint64(p.bytes) : p.at+uint64(p.bytes)])
}

// Passing reports whether the place is in a file that will soon be removed, so that the next run
// may not find it.
func (p Place) Passing() bool { return p.segment.snapshot }

// Whole reports whether the blob, of a shard with that path, is as it was written. Disks may lose
// writes.
func (p Place) Whole(path string) bool {
	if p.segment.image != nil {
		return true // checked when it was opened
	}
	head := uint64(entryHeadBytes) + pad8(uint64(len(path)))
	if p.at < head {
		return false
	}
	entry := p.segment.m.data[p.at-head : p.at+uint64(p.bytes)]
	return xxh3.Hash(entry[8:]) == Blob(entry).word(0)
}

// entryBytes returns how many bytes of a journal a shard takes.
func entryBytes(path string, blobBytes uint32) int64 {
	return int64(entryHeadBytes + pad8(uint64(len(path))) + uint64(blobBytes))
}

// newSegment makes a journal with room for that many bytes after its head.
func (s *Store) newSegment(head []byte, room int64) (*Segment, error) {
	f, err := s.create("journal")
	if err != nil {
		return nil, err
	}
	g := &Segment{f: f, capacity: max(segmentCapacity, int64(len(head))+room)}
	if g.copied = uring.TraitsOf(int(f.Fd())).Remote; g.copied {
		g.m, err = anonymous(g.capacity)
	} else {
		g.m, err = mapPages(f, g.capacity)
	}
	if err == nil {
		err = g.write(head)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		g.close()
		return nil, err
	}
	return g, nil
}

// memorySegment returns a segment without a file.
func memorySegment(room int64) (*Segment, error) {
	g := &Segment{copied: true, capacity: max(segmentCapacity, room)}
	var err error
	g.m, err = anonymous(g.capacity)
	return g, err
}

// anonymous returns memory that is allocated as it is written.
func anonymous(size int64) (*mapping, error) {
	if size > math.MaxInt {
		return nil, fmt.Errorf("%d bytes do not fit into memory", size)
	}
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("memory for the index: %w", err)
	}
	return &mapping{data: data}, nil
}

// write appends data. There must be room.
func (g *Segment) write(data ...[]byte) error {
	at := g.bytes
	if g.f != nil {
		if _, err := writeAll(g.f, at, data...); err != nil {
			_ = g.f.Truncate(at)
			return err
		}
	}
	for _, d := range data {
		if g.copied {
			copy(g.m.data[at:], d)
		}
		at += int64(len(d))
	}
	g.bytes = at
	return nil
}

// fits reports whether there is room for that many more bytes.
func (g *Segment) fits(bytes int64) bool { return g.bytes+bytes <= g.capacity }

func (g *Segment) close() {
	switch {
	case g.image != nil:
		_ = g.image.Close()
	default:
		_ = g.m.Close()
	}
	if g.f != nil {
		_ = g.f.Close() // this unlocks it
	}
}

// entries calls visit for each whole entry of a journal.
func (g *Segment) entries(head []byte, visit func(Place, Shard)) error {
	if g.bytes == 0 || len(g.m.data) < len(head) || string(g.m.data[:len(head)]) != string(head) {
		return errJournal
	}
	for at := uint64(len(head)); ; {
		s, n, ok := readEntry(g.m.data[at:g.bytes])
		if !ok {
			return nil
		}
		visit(Place{g, at + n - uint64(len(s.Blob)), uint32(len(s.Blob))}, s)
		at += n
	}
}

// imageEntries calls visit for each shard of a sealed index.
func (g *Segment) imageEntries(visit func(Place, Shard)) {
	for i := range g.image.Shards() {
		at, n := g.image.blobAt(i)
		if n <= math.MaxUint32 {
			visit(Place{g, at, uint32(n)}, Shard{Object: g.image.Object(i), Codec: g.image.Codec(i), Blob: g.image.Blob(i)})
		}
	}
}
