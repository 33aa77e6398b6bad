package cubes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// failing is a storage of which the n-th operation fails, counted from 0: a listing, one entry of it, a
// look at an object, a read, and what is read from memory.
type failing struct {
	storage.Storage
	cold bool // nothing is in memory

	mu    sync.Mutex
	n     int
	what  string // has failed; "": nothing so far
	quiet bool   // it was one that is done again in another way
}

// fails counts an operation, and says whether it fails.
func (f *failing) fails(what string, quiet bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n != -1 {
		return nil
	}
	f.what, f.quiet = what, quiet
	return fmt.Errorf("%w: %s", faulty.ErrInjected, what)
}

// failed is what has.
func (f *failing) failed() (what string, quiet bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.what, f.quiet
}

func (f *failing) List(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
	if err := f.fails("list", false); err != nil {
		return err
	}
	return f.Storage.List(ctx, match, func(o storage.Object) error {
		if err := f.fails("list up to "+o.Path, false); err != nil {
			return err
		}
		return visit(o)
	})
}

func (f *failing) Stat(ctx context.Context, path string) (storage.Object, error) {
	if err := f.fails("stat "+path, false); err != nil {
		return storage.Object{}, err
	}
	return f.Storage.Stat(ctx, path)
}

func (f *failing) Settled(ctx context.Context, path string) (storage.Object, error) {
	if err := f.fails("settled "+path, false); err != nil {
		return storage.Object{}, err
	}
	return f.Storage.(storage.Settler).Settled(ctx, path)
}

func (f *failing) Submit(reads []*storage.Read) {
	for _, r := range reads {
		x := *r
		err := f.fails(fmt.Sprintf("read %s at %d", r.Object.Path, r.OffsetBytes), false)
		x.Done = func(below error) {
			if err != nil && below == nil {
				copy(x.Buf, bytes.Repeat([]byte{0xdb}, len(x.Buf))) // undefined
				below = &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
			}
			r.Done(below)
		}
		f.Storage.Submit([]*storage.Read{&x})
	}
}

func (f *failing) OpenResident(o storage.Object) (storage.Resident, error) {
	if f.cold {
		return nil, nil
	}
	if err := f.fails("open "+o.Path, true); err != nil {
		return nil, err
	}
	r, err := f.Storage.(storage.ResidentOpener).OpenResident(o)
	if r == nil || err != nil {
		return nil, err
	}
	return failingResident{r, f}, nil
}

type failingResident struct {
	storage.Resident
	of *failing
}

func (r failingResident) ReadAt(b []byte, off int64) bool {
	return r.of.fails("read from memory", true) == nil && r.Resident.ReadAt(b, off)
}

func (r failingResident) Unchanged() error {
	if err := r.of.fails("compare in memory", true); err != nil {
		return err
	}
	return r.Resident.Unchanged()
}

// inParts reads a whole cube at once, in parts, of which some may fail.
func (m *made) inParts(want []byte) (failed []error, wrong bool) {
	const part = 2999
	var reads []*storage.Read
	errs := make(chan error, len(want)/part+1)
	for off := 0; off < len(want); off += part {
		b := make([]byte, min(part, len(want)-off))
		reads = append(reads, &storage.Read{Object: m.object, OffsetBytes: int64(off), Buf: b, Done: func(err error) {
			if err == nil && !bytes.Equal(want[off:off+len(b)], b) {
				err = errOther
			}
			errs <- err
		}})
	}
	m.Submit(reads)
	for range reads {
		if err := <-errs; err == errOther {
			wrong = true
		} else if err != nil {
			failed = append(failed, err)
		}
	}
	return failed, wrong
}

var errOther = errors.New("other bytes")

// requireIdle holds that nothing is left of reads.
func (m *made) requireIdle(t *testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Zero(t, m.inFlight)
	require.Zero(t, m.reserved)
	require.Zero(t, m.jobs.len()+m.tasks.len()+len(m.waiting))
	m.indexes.mu.Lock()
	defer m.indexes.mu.Unlock()
	require.Empty(t, m.indexes.waiting)
}

// Each operation of the storage below fails once, one run after the other. The listing, the check or
// some reads then fail with that, or nothing does where there is another way, and no byte is wrong.
// When it has passed, all is as it should be.
func TestACubeOutlivesTheFailureOfEachOperation(t *testing.T) {
	everything := func(string, bool) bool { return true }
	for i, s := range stores() {
		cold := i != 1
		t.Run(s.name, func(t *testing.T) {
			dir := t.TempDir()
			absent := s.write(t, dir, s.array, 0)
			var want []byte
			told := map[string]int{}
			for n := 0; ; n++ {
				fault := &failing{Storage: openLocal(t, dir), cold: cold, n: n}
				if n == 0 {
					fault.n = -1 // none
				}
				m := &made{dir: dir, array: s.array, absent: absent}
				m.Storage = Over(s.over(fault), Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 16 << 10})
				list := func() error {
					return m.List(t.Context(), everything, func(o storage.Object) error { m.object = o; return nil })
				}
				check := func() error { return m.Check(t.Context(), m.object) }
				look := func() error { _, err := m.Stat(t.Context(), m.object.Path); return err }
				failed := 0
				for stage, do := range []func() error{list, check, look} {
					if err := do(); err != nil {
						what, quiet := fault.failed()
						require.ErrorIs(t, err, faulty.ErrInjected)
						require.False(t, quiet, "%s: %v", what, err)
						failed++
						told[[]string{"list", "check", "look"}[stage]]++
						require.NoError(t, do(), "behind %s", what)
					}
				}
				if n == 0 {
					c := m.cubes[m.object.Path]
					m.cubes["a.zarr"] = c
					want = m.want()
				}
				for range 2 {
					errs, wrong := m.inParts(want)
					what, quiet := fault.failed()
					require.False(t, wrong, "behind %s", what)
					for _, err := range errs {
						require.ErrorIs(t, err, faulty.ErrInjected)
						require.False(t, quiet, "%s: %v", what, err)
						var named *storage.Error
						require.ErrorAs(t, err, &named)
						require.Equal(t, m.object.Path, named.Object)
					}
					if len(errs) > 0 {
						failed++
						told["read"]++
					}
				}
				what, quiet := fault.failed()
				if quiet {
					told["quiet"]++
				}
				if what != "" && !quiet {
					require.Equal(t, 1, failed, "%s is told once", what)
				}
				require.NoError(t, m.Storage.Close())
				m.requireIdle(t)
				require.Zero(t, m.cells.heldBytes())
				if n > 0 && what == "" {
					break
				}
			}
			require.Positive(t, told["list"], told)
			require.Positive(t, told["look"], told)
			require.Positive(t, told[map[bool]string{true: "read", false: "quiet"}[cold]], told)
			require.Equal(t, s.array.Object[0] != s.array.Brick[0], told["check"] > 0, "%v", told)
		})
	}
}
