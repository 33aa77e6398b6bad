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
	"math"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

const (
	// How many states of epochs (about T bytes / 4 each) and layouts of sets (T bytes / 512) of a
	// dataset are kept next to its index.
	storedStates  = 4
	storedLayouts = 32

	statesEnding = ".states"
	layoutEnding = ".layout"

	// storedVersion changes whenever the result computed from the same key changes.
	storedVersion = 1
)

// layouts stores the computed parts of an order in files next to the index, for later runs: the
// states of epochs and the layouts of sets. Anything missing, damaged or from another order is
// computed again.
//
//	0   "lsiofsLY"
//	8   version, u64
//	16  SHA-256 of all that decides the payload
//	48  payload
//	    xxh3 of everything before, u64
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

// key hashes everything that decides the states of an epoch or, together with more, the layout of a
// set.
func (l *layouts) key(ending string, epoch uint64, more ...any) [sha256.Size]byte {
	text, err := json.Marshal([]any{ending, l.catalog.Identity(), l.order, epoch, more})
	if err != nil {
		panic(fmt.Sprintf("the order is not plain data: %v", err)) // impossible: the spec holds numbers and names
	}
	return sha256.Sum256(text)
}

// frame wraps a payload into the bytes of a file.
func frame(key [sha256.Size]byte, payload []byte) []byte {
	b := make([]byte, 0, storedFrameBytes+len(payload))
	b = binary.LittleEndian.AppendUint64(append(b, storedMagic...), storedVersion)
	b = append(append(b, key[:]...), payload...)
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

var errNotStored = errors.New("is damaged, or of something else")

// unframe extracts the payload from the bytes of a file.
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

// load returns a stored payload of size bytes, or nil.
func (l *layouts) load(key [sha256.Size]byte, ending string, size int) []byte {
	b, err := l.catalog.LoadBeside(storedName(key), ending, int64(size)+storedFrameBytes)
	if err == nil {
		b, err = unframe(key, b)
	}
	if err == nil {
		return b
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		l.log.Info("the stored order can't be used and is computed again", "reason", err)
	}
	return nil
}

// save stores a payload. A failure is only logged: the next run then computes it again.
func (l *layouts) save(key [sha256.Size]byte, ending string, kept int, payload []byte) {
	if err := l.catalog.SaveBeside(storedName(key), ending, kept, frame(key, payload)); err != nil {
		l.log.Warn("the computed order can't be stored next to the index: the next run computes it again", "error", err)
	}
}

// loadStates restores the states of an epoch that an earlier run has stored.
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

// saveStates stores the states of an epoch, if they are complete and not yet stored.
func (l *layouts) saveStates(epoch uint64, e *order.Epoch) {
	if e.StoredStatesBytes() == 0 || !e.Prepared() || !l.mark(epoch) {
		return
	}
	l.save(l.key(statesEnding, epoch), statesEnding, storedStates, e.StoreStates(nil))
}

// mark notes that the states of an epoch are stored. It returns false if they already were.
func (l *layouts) mark(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stored[epoch] {
		return false
	}
	if len(l.stored) >= 1024 { // some are then stored once more
		clear(l.stored)
	}
	l.stored[epoch] = true
	return true
}

// shelf returns the place where the layout of a set is stored.
func (l *layouts) shelf(epoch uint64, done []order.Done, deal spec.Assignment, e *order.Epoch) *stream.Shelf {
	s := &shelf{layouts: l, number: epoch, epoch: e, key: l.layoutKey(epoch, done, deal)}
	return &stream.Shelf{Load: s.Load, Save: s.Save}
}

// layoutKey is the key of a set's layout. It includes the row size, since rows differ in size from
// the records that they are made of.
func (l *layouts) layoutKey(epoch uint64, done []order.Done, deal spec.Assignment) [sha256.Size]byte {
	if row := l.catalog.RowBytes(); row > 0 {
		return l.key(layoutEnding, epoch, done, deal, row)
	}
	return l.key(layoutEnding, epoch, done, deal)
}

// shelf stores the layout of one set, together with the states of its epoch.
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

// ahead computes the layout of the next epoch while the current one is read, so that starting the
// next epoch costs only a look-up. It is one goroutine that works briefly and rests for longer, so
// that readers never wait for it. If several epochs were started meanwhile, it computes the one
// after the latest.
type ahead struct {
	pace    pace
	compute func(n nextEpoch, goOn func() bool) error
	log     *slog.Logger

	wanted chan nextEpoch // capacity 1
	stop   chan struct{}
	once   sync.Once
	work   sync.WaitGroup
}

// pace is how long to wait before starting, and how long to work and rest in turn.
type pace struct{ wait, work, rest time.Duration }

// defaultPace uses a fifth of one core: about 150 ns a record, or 15 s for 10⁸ records. It waits
// first so that readers get their first bytes sooner.
var defaultPace = pace{wait: time.Second, work: time.Millisecond, rest: 4 * time.Millisecond}

// nextEpoch is what to compute: a whole epoch, assigned to workers like the one before it.
type nextEpoch struct {
	epoch uint64
	deal  spec.Assignment
}

func newAhead(p pace, log *slog.Logger, compute func(n nextEpoch, goOn func() bool) error) *ahead {
	a := &ahead{pace: p, compute: compute, log: log, wanted: make(chan nextEpoch, 1), stop: make(chan struct{})}
	a.work.Go(a.run)
	return a
}

// begun reports that an epoch is being read. It does not block. After close it does nothing.
func (a *ahead) begun(epoch uint64, deal spec.Assignment) {
	if epoch == math.MaxUint64 {
		return
	}
	n := nextEpoch{epoch + 1, deal}
	for {
		select {
		case a.wanted <- n:
			return
		default:
		}
		select {
		case <-a.wanted: // an earlier one that was not started
		default:
		}
	}
}

func (a *ahead) run() {
	for {
		select {
		case <-a.stop:
			return
		case n := <-a.wanted:
			if !a.sleep(a.pace.wait) {
				return
			}
			if err := a.compute(n, a.goOn()); err != nil {
				a.log.Info("the next epoch's order is not computed ahead", "epoch", n.epoch, "reason", err)
			}
		}
	}
}

// goOn returns the function that keeps the pace. It returns false once a is closed.
func (a *ahead) goOn() func() bool {
	began := time.Now()
	return func() bool {
		if time.Since(began) < a.pace.work {
			return true
		}
		if !a.sleep(a.pace.rest) {
			return false
		}
		began = time.Now()
		return true
	}
}

// sleep waits for d. It returns false if a was closed.
func (a *ahead) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a.stop:
		return false
	case <-t.C:
		return true
	}
}

// close stops the computation in progress and waits for it to end. It is idempotent.
func (a *ahead) close() {
	a.once.Do(func() { close(a.stop) })
	a.work.Wait()
}
