package diskcache

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"github.com/lsiofs/lsiofs/uring"
)

// Shelf is the set of decoded shards of one mount. They are in an arena: in the cache's directory,
// where they outlive the mount, or in a file without a name.
//
//	Take ──► Open ─┬─ Whole ───────────────────────────────────────┬─► Read … ──► Leave
//	               ├─ Ours ────► Write, Write, … ──► Finish ───────┤
//	               │                └─ all but the last block can be read already
//	               └─ Theirs ──► Look, Look, … another process writes it
//
// Take, Leave, Shorten, Lengthen and the counters are for one goroutine at a time. Of these only
// Shorten and Lengthen wait for a disk. All other methods may be called concurrently.
type Shelf struct {
	arena      arena
	engine     uring.Engine
	identify   func(shard int) (Identity, bool) // nil if the arena keeps nothing
	mostTables int64
	tables     int64
	scratch    *buffers
	checkers   *workers
	dry        bool // see NewDrySpool and NewDryShelf
}

// arena is file space for decoded shards.
type arena interface {
	dir() string
	name() string // for people
	// keeps reports whether shards outlive the shelf.
	keeps() bool
	// take returns a place for a decoded shard, and false if there is no room for it.
	take(w *wanted) (ground, bool)
	// isCrowded reports whether take returned false for lack of descriptors.
	isCrowded() bool
	capacity() int64
	used() int64
	shorten() error
	lengthen() bool
	close() error
}

// ground is the place of the pages and sums of one decoded shard. Sums are as in a .sums file.
type ground interface {
	// open reports whether parts of the shard may be there. It may wait for a disk.
	open() (there bool, err error)
	// reserve prepares the place for writing, and reports whether no other process writes the shard
	// now. It may wait for a disk.
	reserve() (ours bool, err error)
	write(pages run, content []byte) error
	writeSums(pages run, sums []byte) error
	readSums(pages run, sums []byte) error
	// each calls visit for the stretches of files that hold pages, in order.
	each(pages run, visit func(file *uring.File, off, n int64))
	// finish is called when all of the shard is there, including its last sum.
	finish()
	leave(how Leaving)
}

// Leaving is what happens to a shard that is left, if the arena keeps shards.
type Leaving int

const (
	Keep   Leaving = iota // it stays
	Remove                // it is removed, unless another process uses it
	Spoilt                // it is removed, and not used by others: it is damaged
)

// State is what Open has found.
type State int

const (
	Ours   State = iota // it has to be written
	Theirs              // another process writes it: Look
	Whole               // all of it is there
)

// shelfScratchBytes is for pages of which only a part is wanted: 16 of the largest such reads.
const shelfScratchBytes = 16 * scratchPieceBytes

// NewSpool returns a shelf in a file without a name in dir, and reserves capacityBytes for it. Sums
// of pages take at most mostTableBytes of memory; others are read with their pages. reserve, if
// set, takes that many more bytes of disk, or returns them if negative, and reports whether that
// was possible; the caller has taken the first capacityBytes. The caller closes the engine, which
// reads the file, after the shelf.
func NewSpool(dir string, capacityBytes, mostTableBytes int64, engine uring.Engine, reserve func(bytes int64) bool) (*Shelf, error) {
	file, err := openNameless(dir, capacityBytes)
	if err != nil {
		return nil, err
	}
	file.reserve = reserve
	return newShelf(file, mostTableBytes, engine), nil
}

func newShelf(a arena, mostTableBytes int64, engine uring.Engine) *Shelf {
	return &Shelf{
		arena: a, engine: engine, mostTables: mostTableBytes,
		scratch: newBuffers(shelfScratchBytes), checkers: newWorkers(runtime.GOMAXPROCS(0)),
	}
}

// Dir returns the directory that the shards are in.
func (s *Shelf) Dir() string { return s.arena.dir() }

// Name returns the shelf's name for messages.
func (s *Shelf) Name() string { return s.arena.name() }

// CapacityBytes returns the room for decoded shards.
func (s *Shelf) CapacityBytes() int64 { return s.arena.capacity() }

// UsedBytes returns the room that shards take that were taken and not left.
func (s *Shelf) UsedBytes() int64 { return s.arena.used() }

// TableBytes returns the memory of the sums of all shards that were taken and not left.
func (s *Shelf) TableBytes() int64 { return s.tables }

// Shorten returns the room that no shard takes.
func (s *Shelf) Shorten() error { return s.arena.shorten() }

// Lengthen takes back the room that Shorten has returned, and reports whether that was possible.
func (s *Shelf) Lengthen() bool { return s.arena.lengthen() }

// Close ends the use of the shelf. No read may be in progress.
func (s *Shelf) Close() error {
	s.checkers.close()
	return s.arena.close()
}

// RoomBytes returns the room that a shard of that many decoded bytes takes.
func RoomBytes(decodedBytes int64) int64 { return roundToPages(decodedBytes) }

// Decoded is one decoded shard. One decoder writes it from front to back, and readers may follow.
// Each page that is read is checked: its sum was computed from the bytes before they were written.
// A disk may lose data long after it was written: then the kernel returns zeros.
//
// The sums are in memory if there is room for them. Otherwise they are read from the disk with the
// pages, which makes reads of small pieces about a tenth slower.
type Decoded struct {
	shelf     *Shelf
	ground    ground
	summer    summer
	sizeBytes int64
	table     []uint32 // a sum for each page; nil: they are read from the disk

	// Used by the decoder only.
	at     int64  // bytes that were written
	late   []byte // sums of the last block that was written, which are not on the disk yet
	lateAt int64  // its first page
}

// Crowded reports whether Take returned false because too many shards are open, not because they
// take too much room: then one that is left may stay on the disk.
func (s *Shelf) Crowded() bool { return s.arena.isCrowded() }

// Keeps reports whether shards outlive the shelf.
func (s *Shelf) Keeps() bool { return s.arena.keeps() }

// Take returns a place for a decoded shard, and false if there is no room for it.
func (s *Shelf) Take(shard int, decodedBytes int64) (*Decoded, bool) {
	w := &wanted{sizeBytes: decodedBytes}
	binary.LittleEndian.PutUint64(w.key[:], uint64(shard))
	if s.identify != nil {
		id, ok := s.identify(shard)
		if !ok {
			return nil, false
		}
		w.id, w.key = id, keyOf(id, decodedBytes)
	}
	g, ok := s.arena.take(w)
	if !ok {
		return nil, false
	}
	d := &Decoded{shelf: s, ground: g, summer: newSummer(w.key), sizeBytes: decodedBytes}
	if n := pagesOf(decodedBytes); s.tables+n*sumBytes <= s.mostTables {
		d.table = make([]uint32, n)
		s.tables += d.TableBytes()
	}
	return d, true
}

// TableBytes returns the memory of the shard's sums.
func (d *Decoded) TableBytes() int64 { return int64(len(d.table)) * sumBytes }

// Leave ends the use of a shard: no read is in progress, and no decoder is running.
func (d *Decoded) Leave(how Leaving) {
	d.shelf.tables -= d.TableBytes()
	d.table = nil
	d.ground.leave(how)
}

// Open finds out how much of the shard is there, and prepares its place for writing if it is not
// complete. It may wait for a disk. The error is ErrNotKept.
func (d *Decoded) Open() (State, error) {
	there, err := d.ground.open()
	if err != nil {
		return Ours, err
	}
	if there {
		if whole, err := d.whole(); err != nil || whole {
			return Whole, err
		}
	}
	return d.Claim()
}

// Claim is Open for a shard that another process was writing when Open was called.
func (d *Decoded) Claim() (State, error) {
	ours, err := d.ground.reserve()
	if err != nil {
		return Ours, err
	}
	if !ours {
		return Theirs, nil
	}
	// The other process may have written the end just before its claim ended.
	if whole, err := d.whole(); err != nil || whole {
		return Whole, err
	}
	d.Restart()
	return Ours, nil
}

// Restart makes this process write a shard that another one writes, too: both write the same bytes.
func (d *Decoded) Restart() { d.at, d.late = 0, d.late[:0] }

// whole reads all sums, and reports whether each page has one.
func (d *Decoded) whole() (bool, error) {
	if !d.shelf.arena.keeps() {
		return false, nil
	}
	if d.shelf.dry {
		return d.ground.open()
	}
	d.at = 0
	there, err := d.Look()
	if err != nil || there < d.sizeBytes {
		return false, err
	}
	d.ground.finish()
	return true, nil
}

// Look returns how many bytes of the shard, from its first one, another process has written.
func (d *Decoded) Look() (there int64, err error) {
	all := pagesOf(d.sizeBytes)
	sums := make([]byte, min(all, sumsAtOnce)*sumBytes)
	for begin := d.at / pageBytes; begin < all; {
		r := run{begin, min(begin+sumsAtOnce, all)}
		of := sums[:r.pages()*sumBytes]
		if err := d.ground.readSums(r, of); err != nil {
			return 0, err
		}
		for ; begin < r.end; begin++ {
			sum := sumOf(of, begin-r.begin)
			if sum == 0 {
				return d.at, nil
			}
			// Readers may be checking pages whose sums are known already: those sums are not
			// written again.
			switch {
			case d.table == nil || d.table[begin] == sum:
			case d.table[begin] != 0:
				return 0, fmt.Errorf("%w: page %d has another sum than it had", ErrNotKept, begin)
			default:
				d.table[begin] = sum
			}
			d.at = (begin + 1) * pageBytes
		}
	}
	return d.sizeBytes, nil
}

// Write appends the next bytes: whole pages, except at the end of the shard. They may be read when
// the bytes after them have been written, or Finish has been called: until then a decoder may find
// that they were wrong. It does not keep p. It may wait for a disk.
func (d *Decoded) Write(p []byte) error {
	if d.at%pageBytes != 0 || d.at+int64(len(p)) > d.sizeBytes {
		return fmt.Errorf("a decoder writes %d bytes at %d of %d: a defect of lsiofs, please report it", len(p), d.at, d.sizeBytes)
	}
	if d.shelf.dry {
		d.at += int64(len(p))
		return nil
	}
	if err := d.writeLate(); err != nil {
		return err
	}
	d.lateAt = d.at / pageBytes
	whole := len(p) / pageBytes * pageBytes
	if err := d.writePages(p[:whole]); err != nil {
		return err
	}
	if rest := p[whole:]; len(rest) > 0 {
		var page [pageBytes]byte
		copy(page[:], rest)
		return d.writePages(page[:])
	}
	return nil
}

// writePages writes whole pages, and computes their sums.
func (d *Decoded) writePages(content []byte) error {
	if len(content) == 0 {
		return nil
	}
	pages := run{pagesOf(d.at), pagesOf(d.at) + int64(len(content))/pageBytes}
	for i := range pages.pages() {
		sum := d.summer.sum(pages.begin+i, content[i*pageBytes:][:pageBytes])
		d.late = binary.LittleEndian.AppendUint32(d.late, sum)
		switch {
		case d.table == nil || d.table[pages.begin+i] == sum: // another process has written it
		case d.table[pages.begin+i] != 0:
			return fmt.Errorf("%w: page %d has another sum than it should have", ErrNotKept, pages.begin+i)
		default:
			d.table[pages.begin+i] = sum
		}
	}
	if err := d.ground.write(pages, content); err != nil {
		return err
	}
	d.at += pages.bytes()
	return nil
}

// writeLate writes the sums of the last block, if they have to be on the disk.
func (d *Decoded) writeLate() error {
	n := int64(len(d.late)) / sumBytes
	if n == 0 {
		return nil
	}
	sums := d.late
	d.late = d.late[:0]
	if d.table != nil && !d.shelf.arena.keeps() {
		return nil
	}
	return d.ground.writeSums(run{d.lateAt, d.lateAt + n}, sums)
}

// Finish ends the writing of a shard that was valid to its end.
func (d *Decoded) Finish() error {
	err := d.writeLate()
	if err == nil {
		d.ground.finish()
	}
	return err
}

// EachPlace calls visit for the places of bytes [off, off+size) of the shard: tests damage them.
func (d *Decoded) EachPlace(off, size int64, visit func(fd int, at, size int64)) {
	skip, left := off%pageBytes, size
	d.ground.each(runOf(off, size), func(file *uring.File, at, n int64) {
		n = min(n-skip, left)
		visit(file.FD(), at+skip, n)
		skip, left = 0, left-n
	})
}
