package diskcache

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// NewDrySpool returns a shelf like that of NewSpool that only counts: it has no file, writes are
// dropped, and reads succeed without data.
func NewDrySpool(capacityBytes, mostTableBytes int64) *Shelf {
	return newDry(&dryArena{bytes: capacityBytes}, mostTableBytes)
}

// NewDryShelf returns a shelf like that of Storage.NewShelf, of a cache in dir with the given bound,
// that only counts. It has the shards that the cache has now. Nothing is written or created. It
// returns nil if NewShelf would fail.
func NewDryShelf(dir string, boundBytes int64, c ShelfConfig) *Shelf {
	most := c.mostBytes(boundBytes)
	if most == 0 {
		return nil
	}
	a := &dryArena{bytes: most, kept: map[int]bool{}, crowd: mostKept(DefaultConfig().MaxFiles)}
	d, err := lookAt(kernel{}, dir)
	if err != nil || d.store < 0 {
		d = nil // there is no cache yet
	} else {
		defer d.close()
	}
	for _, shard := range c.Shards {
		id, ok := c.Identify(shard)
		if !ok {
			return nil
		}
		n := c.DecodedBytes(shard)
		if w := (&wanted{id: id, key: keyOf(id, n), sizeBytes: n}); d != nil && d.hasWhole(w) {
			a.kept[shard] = true
		}
	}
	return newDry(a, c.MostTableBytes)
}

func newDry(a *dryArena, mostTableBytes int64) *Shelf {
	return &Shelf{arena: a, mostTables: mostTableBytes, checkers: newWorkers(runtime.GOMAXPROCS(0)), dry: true}
}

// Has reports whether a dry shelf has all of a shard.
func (s *Shelf) Has(shard int) bool {
	a, ok := s.arena.(*dryArena)
	return ok && a.has(shard)
}

// hasWhole reports whether an object's files are there, and each page has a sum. It writes nothing.
func (c *directory) hasWhole(w *wanted) bool {
	folder, err := c.subdirectory(c.store, w.key.folder(), false)
	if err != nil {
		return false
	}
	defer c.disk.close(folder)
	data, err := c.openFileTo(unix.O_RDONLY, folder, w.key.name()+".data", w.dataBytes())
	if err != nil {
		return false
	}
	c.disk.close(data)
	sums, err := c.openFileTo(unix.O_RDONLY, folder, w.key.name()+".sums", w.sumsBytes())
	if err != nil {
		return false
	}
	defer c.disk.close(sums)
	if c.checkHeader(sums, w) != nil {
		return false
	}
	d := &Decoded{ground: sumsOnly{disk: c.disk, fd: sums}, sizeBytes: w.sizeBytes}
	there, err := d.Look()
	return err == nil && there == w.sizeBytes
}

// sumsOnly is the open .sums file of an object that is only looked at: only readSums is called.
type sumsOnly struct {
	ground
	disk disk
	fd   int
}

func (g sumsOnly) readSums(pages run, sums []byte) error {
	n, err := g.disk.read(g.fd, sums, sumsAt(pages.begin))
	if err == nil {
		clear(sums[n:])
	}
	return err
}

// dryArena counts the space that is taken.
type dryArena struct {
	bytes, taken int64
	crowd        int // shards at a time; 0: any number
	shards       int
	crowded      bool

	mu   sync.Mutex
	kept map[int]bool // shards that are whole; nil if they do not outlive the shelf
}

func (a *dryArena) dir() string     { return "" }
func (a *dryArena) name() string    { return "dry spool" }
func (a *dryArena) keeps() bool     { return a.kept != nil }
func (a *dryArena) isCrowded() bool { return a.crowded }
func (a *dryArena) capacity() int64 { return a.bytes }
func (a *dryArena) used() int64     { return a.taken }
func (a *dryArena) shorten() error  { return nil }
func (a *dryArena) lengthen() bool  { return true }
func (a *dryArena) close() error    { return nil }

func (a *dryArena) has(shard int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept[shard]
}

// take implements arena.
func (a *dryArena) take(w *wanted) (ground, bool) {
	n := roundToPages(w.sizeBytes)
	if a.keeps() {
		n = w.diskBytes()
	}
	a.crowded = a.crowd > 0 && a.shards >= a.crowd
	if a.crowded || n > a.bytes-a.taken && !(a.keeps() && a.shards == 0) {
		return nil, false
	}
	a.taken += n
	a.shards++
	return &dryGround{arena: a, bytes: n, shard: int(binary.LittleEndian.Uint64(w.key[:]))}, true
}

var errDry = errors.New("the shelf is dry")

// dryGround has no place: the other methods are for shelves that are not dry.
type dryGround struct {
	ground
	arena *dryArena
	bytes int64
	shard int
}

func (g *dryGround) open() (bool, error)        { return g.arena.has(g.shard), nil }
func (g *dryGround) reserve() (bool, error)     { return true, nil }
func (g *dryGround) readSums(run, []byte) error { return errDry }

func (g *dryGround) finish() {
	if a := g.arena; a.keeps() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.kept[g.shard] = true
	}
}

func (g *dryGround) leave(how Leaving) {
	a := g.arena
	a.taken -= g.bytes
	a.shards--
	if how != Keep {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.kept, g.shard)
	}
}
