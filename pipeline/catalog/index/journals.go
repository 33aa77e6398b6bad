package index

import (
	"os"
	"slices"
	"sync"
	"time"
)

// Journals are what the index directory has of a dataset that grows: journals without an
// end, of which those are dropped that have nothing in them any more that is wanted. Each
// process writes to journals of its own and reads those of the others; those of dead
// processes become its own.
//
//	j := store.OpenJournals(formats, visit)   // every shard that is known
//	j.Begin(format)                           // what new shards are cut by
//	j.Append(shard)  ─► Place                 // on disk when it returns, for whoever comes after a kill
//	j.Drop(place)                             // nobody wants it any more
//	j.Sparse() ─► Segment, Append what is live of it, j.Retire(segment)
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
	again    time.Time // when it is tried again then
}

// retryDirectory is after how long a directory that could not be written is tried again:
// a full disk is given room.
const retryDirectory = time.Minute

// OpenJournals opens what is there: visit is called for each shard, with the format that
// it was cut by, one of formats; of a path perhaps more than once. What is of another
// format is left alone.
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
	for _, f := range own { // last, so that of what is in several journals they count
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
		return // it is made again where it is wanted
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

// Begin says what the shards are cut by that are going to be appended.
func (j *Journals) Begin(format string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.head = j.store.journalHead(format)
}

// Append keeps a shard. Where the directory can't be written it is kept in memory, which
// is logged, and the directory is tried again now and then.
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

// writable says whether the directory is worth a try.
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
			j.store.log.Info("index directory can be written again: what was kept in memory goes there", "dir", j.store.dir)
		}
	}
	if err != nil {
		if j.active != nil && j.active.fits(room) {
			return nil // that in memory goes on
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
	j.store.log.Warn("index directory can't be written: what is known of new shards is kept in memory, and found out again by the next run unless it can be written by then; free space there or name another with --index-dir",
		"dir", j.store.dir, "error", err)
}

// Drop says that nobody wants a shard of that path any more.
func (j *Journals) Drop(p Place, path string) {
	if p.segment != nil {
		p.segment.live.Add(-entryBytes(path, p.bytes))
	}
}

// Size says how many bytes of journals there are, of this process's own, and how many of
// them are wanted.
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

// owned says whether it is this process's to remove.
func (g *Segment) owned() bool { return g.image == nil && (g.f != nil || g.copied) }

const (
	// Journals may hold as much that is not wanted as that is, and so much more.
	spareBytes = 2 * segmentCapacity
	// They may be so many more than would do, of processes that were ended early.
	spareJournals = 16
)

// Sparse gives a journal that should be emptied and retired: one in memory, where the
// directory can be written again; else of those of this process the one of which least is
// wanted, where they hold too much that is not, or are too many. It is nil where they are in order. Afterwards Append does not write to it.
func (j *Journals) Sparse() *Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	bytes, live, journals := j.size()
	var worst *Segment
	for _, g := range j.segments {
		if g.retired {
			continue // it goes when nobody reads any more
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

// smallest is the journal of this process of which least is wanted in bytes.
func (j *Journals) smallest() (s *Segment) {
	for _, g := range j.segments {
		if g.owned() && !g.retired && g != j.active && (s == nil || g.live.Load() < s.live.Load()) {
			s = g
		}
	}
	return s
}

// Retire removes a journal of which nothing is wanted any more.
func (j *Journals) Retire(g *Segment) {
	if g.f != nil {
		_ = os.Remove(g.f.Name())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	g.retired = true
	j.free()
}

// Acquire has blobs stay valid until Release.
func (j *Journals) Acquire() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.readers++
}

// Release is said once for each Acquire.
func (j *Journals) Release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.readers--
	j.free()
}

// free closes retired segments where nobody reads. mu is held.
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

// Close frees everything. Journals stay for the next run, but for those of which nothing
// is wanted. No blob may be used afterwards.
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
