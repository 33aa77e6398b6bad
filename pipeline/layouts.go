package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

const (
	// How many states of epochs (about T bytes / 4 each) and layouts of sets
	// (T bytes / 512) of a dataset are kept beside its index.
	storedStates  = 4
	storedLayouts = 32

	statesEnding = ".states"
	layoutEnding = ".layout"

	// storedVersion changes whenever what is computed from the same key does.
	storedVersion = 1
)

// layouts keeps what an order costs to compute from one run to the next, in
// files beside the index: the states of epochs and the layouts of sets. What is
// missing, damaged or of another order is computed again.
//
//	0   "lsiofsLY"
//	8   version, u64
//	16  SHA-256 of all that decides the payload
//	48  payload
//	    xxh3 of all before, u64
type layouts struct {
	catalog *catalog.Catalog
	order   spec.Order
	log     *slog.Logger

	mu     sync.Mutex
	stored map[uint64]bool // epochs whose states this run has loaded or saved
}

func newLayouts(c *catalog.Catalog, o spec.Order, log *slog.Logger) *layouts {
	return &layouts{catalog: c, order: o, log: log, stored: map[uint64]bool{}}
}

const (
	storedMagic      = "lsiofsLY"
	storedHeadBytes  = 16 + sha256.Size
	storedFrameBytes = storedHeadBytes + 8
)

// key hashes everything that decides the states of an epoch or, with what more
// says, the layout of a set.
func (l *layouts) key(ending string, epoch uint64, more ...any) [sha256.Size]byte {
	text, err := json.Marshal([]any{ending, l.catalog.Identity(), l.order, epoch, more})
	if err != nil {
		panic(fmt.Sprintf("the order is not plain data: %v", err)) // can't be: spec holds numbers and names
	}
	return sha256.Sum256(text)
}

// frame puts payload into the bytes of a file.
func frame(key [sha256.Size]byte, payload []byte) []byte {
	b := make([]byte, 0, storedFrameBytes+len(payload))
	b = binary.LittleEndian.AppendUint64(append(b, storedMagic...), storedVersion)
	b = append(append(b, key[:]...), payload...)
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

var errNotStored = errors.New("is damaged, or of something else")

// unframe takes the payload out of the bytes of a file.
func unframe(key [sha256.Size]byte, b []byte) ([]byte, error) {
	if len(b) < storedFrameBytes || string(b[:8]) != storedMagic || binary.LittleEndian.Uint64(b[8:]) != storedVersion ||
		[sha256.Size]byte(b[16:storedHeadBytes]) != key {
		return nil, errNotStored
	}
	end := len(b) - 8
	if xxh3.Hash(b[:end]) != binary.LittleEndian.Uint64(b[end:]) {
		return nil, errNotStored
	}
	return b[storedHeadBytes:end], nil
}

func storedName(key [sha256.Size]byte) string { return hex.EncodeToString(key[:16]) }

// load gives a payload of size bytes, or nil.
func (l *layouts) load(key [sha256.Size]byte, ending string, size int) []byte {
	b, err := l.catalog.LoadBeside(storedName(key), ending, int64(size)+storedFrameBytes)
	if err == nil {
		b, err = unframe(key, b)
	}
	if err == nil {
		return b
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		l.log.Info("what an earlier run has stored of the order can't be used and is computed again", "reason", err)
	}
	return nil
}

// save stores a payload. That it failed is only logged: the next run computes.
func (l *layouts) save(key [sha256.Size]byte, ending string, kept int, payload []byte) {
	if err := l.catalog.SaveBeside(storedName(key), ending, kept, frame(key, payload)); err != nil {
		l.log.Warn("what was computed of the order can't be stored next to the index: the next run computes it again", "error", err)
	}
}

// loadStates brings the states of an epoch back that an earlier run has stored.
func (l *layouts) loadStates(epoch uint64, e *order.Epoch) {
	size := e.StoredStatesBytes()
	if size == 0 {
		return
	}
	b := l.load(l.key(statesEnding, epoch), statesEnding, int(size))
	if b == nil {
		return
	}
	if err := e.RestoreStates(b); err != nil {
		l.log.Info("stored states of an epoch can't be used and are computed again", "epoch", epoch, "reason", err)
		return
	}
	l.mark(epoch)
}

// saveStates stores the states of an epoch, if they are all there and were not
// stored before.
func (l *layouts) saveStates(epoch uint64, e *order.Epoch) {
	if e.StoredStatesBytes() == 0 || !e.Prepared() || !l.mark(epoch) {
		return
	}
	l.save(l.key(statesEnding, epoch), statesEnding, storedStates, e.StoreStates(nil))
}

// mark notes that the states of an epoch are stored; false means that they were.
func (l *layouts) mark(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stored[epoch] {
		return false
	}
	if len(l.stored) >= 1024 { // then some are stored once more
		clear(l.stored)
	}
	l.stored[epoch] = true
	return true
}

// shelf is where the layout of a set is kept.
func (l *layouts) shelf(epoch uint64, done []order.Done, deal spec.Deal, e *order.Epoch) stream.Shelf {
	return &shelf{layouts: l, number: epoch, epoch: e, key: l.layoutKey(epoch, done, deal)}
}

// layoutKey is that of a set's layout. Rows are of another size than the records that they
// are made of.
func (l *layouts) layoutKey(epoch uint64, done []order.Done, deal spec.Deal) [sha256.Size]byte {
	if row := l.catalog.RowBytes(); row > 0 {
		return l.key(layoutEnding, epoch, done, deal, row)
	}
	return l.key(layoutEnding, epoch, done, deal)
}

// shelf keeps the layout of one set, and with it the states of its epoch.
type shelf struct {
	layouts *layouts
	number  uint64
	epoch   *order.Epoch
	key     [sha256.Size]byte
}

func (s *shelf) Load(size int) []byte { return s.layouts.load(s.key, layoutEnding, size) }

func (s *shelf) Save(layout []byte) {
	s.layouts.save(s.key, layoutEnding, storedLayouts, layout)
	s.layouts.saveStates(s.number, s.epoch)
}
