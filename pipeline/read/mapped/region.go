package mapped

import (
	"errors"
	"runtime/debug"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Region is a piece that is mapped: its bytes can be touched by who has pinned it,
// under Faulted. Of Live the owner counts its records' bytes; one that is forgotten has
// less than none.
type Region struct {
	budget.Memory
	of    *shard
	seen  atomic.Uint64 // Evictions when the page cache held all of it
	piece int
	off   int64
	table int64 // bytes of the owner's table
}

// Piece is the number that its request had.
func (r *Region) Piece() int { return r.piece }

// PinResident pins a region that a reader has found, as Pins.Pin does, unless it is
// not all in the page cache any more: to touch it would then wait for a disk, and hold
// a processor. Such a one is forgotten. evictions is what Maps.Evictions gave before.
func (r *Region) PinResident(evictions uint64) bool {
	if !r.Pins.Pin() {
		return false
	}
	return r.seen.Load() == evictions || r.look(evictions)
}

// look asks the page cache about a region that is pinned, and takes the pin back
// where it does not hold all of it.
func (r *Region) look(evictions uint64) bool {
	if r.of.mapping.Resident(r.off, int64(len(r.Bytes))) {
		r.seen.Store(evictions)
		return true
	}
	r.of.maps.forget([]*Region{r})
	r.Pins.Unpin()
	return false
}

// Verify runs check, which reads a pinned region and says whether its bytes are good.
// If they are not it looks why: the error is ErrChanged's, after which nothing of the
// shard is mapped any more, ErrReadAgain's, after which it may be mapped anew, or ErrFault's. nil means that the file is what it was:
// check saw what it has, good or bad.
func (r *Region) Verify(check func() (good bool)) error {
	good := false
	gone := Faulted(func() { good = check() })
	if good && !gone {
		return nil
	}
	err := r.of.mapping.Check()
	if err == nil && gone {
		err = r.fault()
	}
	r.of.maps.distrust(r.of, err)
	return err
}

// ErrFault is wrapped when mapped memory could not be read, though the file is what
// it was.
var ErrFault = errors.New("its mapped bytes can't be read: its disk may be failing")

// fault is the error for a region whose memory was gone.
func (r *Region) fault() error {
	if c, ok := r.of.mapping.(storage.Copy); ok {
		return c.Lost()
	}
	return &storage.Error{Object: r.of.maps.config.Object(r.of.number).Path, OffsetBytes: r.off, SizeBytes: int64(len(r.Bytes)), Err: ErrFault}
}

// Faulted runs what touches mapped memory, and says whether that was gone: the
// goroutine then gets a panic, not the process a signal. Other panics go on.
func Faulted(touch func()) (gone bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !storage.IsFault(p) {
			panic(p) // our own mistake
		}
		gone = true
	}()
	touch()
	return false
}
