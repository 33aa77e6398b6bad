package soak

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// doomed is a mount whose server is killed while clients use it.
type doomed struct {
	*mounted
	v *victim
	// dying is set before the server gets its signal: from then on any failure is right. stop ends
	// the clients.
	dying, stop atomic.Bool

	at [killers]atomic.Pointer[progress] // each client's last opening
}

// progress is how far a client is with its file of a view: the ends of what it has received and of
// what it has requested.
type progress struct {
	view        int
	came, asked atomic.Int64
}

// progress returns that of worker w's file in the present view. The caller holds mu.
func (c *doomed) progress(w int) (came, asked int64) {
	if p := c.at[w].Load(); p != nil && p.view == c.now.number {
		return p.came.Load(), p.asked.Load()
	}
	return 0, 0
}

// run reads worker w's file, once per view; now and then it saves and restores.
func (c *doomed) run(w int, r *rand.Rand) error {
	for !c.stop.Load() {
		err := c.readView(w, r)
		if err != nil && !c.dying.Load() {
			return fmt.Errorf("%s: client %d: %w", c.m.d.name, w, err)
		}
		if wrong := new(wrongByte); errors.As(err, &wrong) {
			return err
		}
		if err != nil {
			return nil // its server has died
		}
	}
	return nil
}

// readView opens the worker's file and reads it until a restore ends it.
func (c *doomed) readView(w int, r *rand.Rand) error {
	f, want, v, err := c.openWorker(w)
	if err != nil {
		return err
	}
	defer f.Close()
	at := &progress{view: v.number}
	c.at[w].Store(at)
	buf := make([]byte, 1+r.IntN(100_000))
	for off := int64(0); !c.stop.Load(); {
		switch r.IntN(30) {
		case 0:
			err = c.saveExactly(r)
		case 1:
			err = c.restoreSaved(r)
		default:
			if off == want.size() { // no more reads, so that the mark stays
				time.Sleep(time.Millisecond)
				continue
			}
			at.asked.Store(min(off+int64(len(buf)), want.size()))
			var n int
			if n, err = c.compareAt(f, want, buf, off); err == nil || err == io.EOF {
				off, err = off+int64(n), nil
				at.came.Store(off)
			}
		}
		if c.isStale(err, &v) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// saveExactly saves the whole checkpoint, and checks that what it counts as delivered is what the
// clients have received.
func (c *doomed) saveExactly(r *rand.Rand) error {
	c.mu.RLock() // no restore meanwhile
	defer c.mu.RUnlock()
	var least, most [killers]int64
	for w := range killers {
		least[w], _ = c.progress(w)
	}
	path := filepath.Join(c.v.saves, fmt.Sprintf("new-%d", r.Uint64()))
	defer os.Remove(path)
	if r.IntN(3) == 0 {
		if err := program("checkpoint", "save", c.Dir, path); err != nil {
			return err
		}
	} else {
		b, err := os.ReadFile(c.path("checkpoint"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	for w := range killers {
		_, most[w] = c.progress(w)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d, err := parse(b)
	if err != nil {
		return fmt.Errorf("%q: %w", b, err)
	}
	last := d.Done[len(d.Done)-1]
	for w, n := range last.Consumed {
		want, err := c.m.stream(c.now.position, w, killers)
		if err != nil {
			return err
		}
		if low, high := want.whole(least[w]), want.whole(most[w]); n < low || n > high {
			return &wrongByte{fmt.Errorf("the checkpoint says that worker %d has read %d records, and it has between %d and %d", w, n, low, high)}
		}
	}
	c.done.saves.Add(1)
	return os.Rename(path, c.v.checkpoint())
}

// restoreSaved restores the last saved position, or another epoch.
func (c *doomed) restoreSaved(r *rand.Rand) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := position{epoch: uint64(r.IntN(epochs))}
	doc := fmt.Appendf(nil, `{"epoch": %d}`, p.epoch)
	if b, err := os.ReadFile(c.v.checkpoint()); err == nil && r.IntN(3) > 0 {
		d, err := parse(b)
		if err != nil {
			return &wrongByte{err}
		}
		doc, p = b, d.position()
	}
	if err := writeThrough(c.path("checkpoint"), doc); err != nil {
		return err
	}
	c.now = view{c.now.number + 1, p}
	c.done.restores.Add(1)
	return nil
}
