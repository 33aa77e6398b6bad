package mapped

import (
	"errors"
	"runtime/debug"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Region is a mapped piece: its bytes may be touched while it is pinned, under Faulted. In Live the
// owner counts the bytes of its undelivered records; a forgotten region has a negative count.
type Region struct {
	budget.Memory
	of    *shard
	seen  atomic.Uint64 // Evictions when the page cache held all of it
	piece int
	off   int64
	table int64 // bytes of the owner's table
}

// Piece returns the number in its request.
func (r *Region) Piece() int { return r.piece }

// PinResident pins a region that a reader has found, as Pins.Pin does, unless it is not entirely in
// the page cache any more: touching it would then wait for a disk, and hold a processor. Such a
// region is forgotten. evictions is a previous result of Maps.Evictions.
func (r *Region) PinResident(evictions uint64) bool {
	if !r.Pins.Pin() {
		return false
	}
	return r.seen.Load() == evictions || r.look(evictions)
}

// look reports whether the page cache holds all of a pinned region, and unpins it if not.
func (r *Region) look(evictions uint64) bool {
	if r.of.mapping.Resident(r.off, int64(len(r.Bytes))) {
		r.seen.Store(evictions)
		return true
	}
	r.of.maps.forget([]*Region{r})
	r.Pins.Unpin()
	return false
}

// Verify runs check, which reads a pinned region and reports whether its bytes are good. If they
// are not, it looks for the cause: it returns ErrChanged's error, after which nothing of the shard
// is mapped any more, ErrReadAgain's, after which it may be mapped again, or ErrFault's. nil means
// that the file is unchanged: check saw its content, good or bad.
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

// ErrFault is wrapped if mapped memory can't be read, although the file is unchanged.
var ErrFault = errors.New("its mapped bytes can't be read: its disk may be failing")

// fault returns the error for a region whose memory is gone.
func (r *Region) fault() error {
	if err := r.of.mapping.Lost(); err != nil {
		return err
	}
	return &storage.Error{Object: r.of.maps.config.Object(r.of.number).Path, OffsetBytes: r.off, SizeBytes: int64(len(r.Bytes)), Err: ErrFault}
}

// Faulted runs touch, which accesses mapped memory, and reports whether that memory was gone: the
// goroutine then panics instead of the process getting a signal. Other panics propagate.
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
