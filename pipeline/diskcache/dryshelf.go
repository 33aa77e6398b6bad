package diskcache

import (
	"errors"
	"runtime"
)

// NewDrySpool returns a shelf like that of NewSpool that only counts: it has no file, writes are
// dropped, and reads succeed without data.
func NewDrySpool(capacityBytes, mostTableBytes int64) *Shelf {
	return &Shelf{arena: &dryArena{bytes: capacityBytes}, mostTables: mostTableBytes, checkers: newCrew(runtime.GOMAXPROCS(0)), dry: true}
}

// dryArena counts the space that is taken.
type dryArena struct{ bytes, taken int64 }

func (a *dryArena) dir() string     { return "" }
func (a *dryArena) name() string    { return "dry spool" }
func (a *dryArena) keeps() bool     { return false }
func (a *dryArena) isCrowded() bool { return false }
func (a *dryArena) capacity() int64 { return a.bytes }
func (a *dryArena) used() int64     { return a.taken }
func (a *dryArena) shorten() error  { return nil }
func (a *dryArena) lengthen() bool  { return true }
func (a *dryArena) close() error    { return nil }

// take implements arena.
func (a *dryArena) take(w *wanted) (ground, bool) {
	n := roundToPages(w.sizeBytes)
	if n > a.bytes-a.taken {
		return nil, false
	}
	a.taken += n
	return &dryGround{arena: a, bytes: n}, true
}

// dryGround has no place: only leave is called, the other methods are for shelves that are not dry.
type dryGround struct {
	ground
	arena *dryArena
	bytes int64
}

var errDry = errors.New("the shelf is dry")

func (g *dryGround) open() (bool, error)        { return false, nil }
func (g *dryGround) reserve() (bool, error)     { return true, nil }
func (g *dryGround) finish()                    {}
func (g *dryGround) readSums(run, []byte) error { return errDry }
func (g *dryGround) leave(Leaving)              { g.arena.taken -= g.bytes }
