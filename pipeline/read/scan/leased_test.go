package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// fakeLeaser breaks leases on demand.
type fakeLeaser struct {
	breaks uint64
	fallen bool // leases may have been lost
}

func (l *fakeLeaser) Breaks() uint64                 { return l.breaks }
func (l *fakeLeaser) Unbroken(breaks uint64) bool    { return breaks == l.breaks && !l.fallen }
func (l *fakeLeaser) LeaseStats() storage.LeaseStats { return storage.LeaseStats{} }

func TestCopiesUnderLeasesAreCheckedOnlyIfLeaseMayBeLost(t *testing.T) {
	for name, change := range map[string]func(leaser *fakeLeaser, store *mapping){
		"nothing happens":              func(*fakeLeaser, *mapping) {},
		"somebody waits to write":      func(leaser *fakeLeaser, _ *mapping) { leaser.breaks++ },
		"the process stood still":      func(leaser *fakeLeaser, _ *mapping) { leaser.fallen = true },
		"there was no lease from then": func(_ *fakeLeaser, store *mapping) { store.unleased = true },
	} {
		t.Run(name, func(t *testing.T) {
			d, store, _, r, l := lendMapped(t, 40)
			leaser := new(fakeLeaser)
			store.Leaser = leaser
			if !l.Leased() {
				t.Skip("there are no leases here")
			}
			checks := store.checks.Load()
			change(leaser, store)
			if store.unleased {
				require.False(t, l.Leased())
			}
			require.NoError(t, l.Check())
			if name == "nothing happens" {
				require.Equal(t, checks, store.checks.Load())
			} else {
				require.Equal(t, checks+1, store.checks.Load())
			}
			l.Release()
			readtest.ReadAll(t, d, r, readtest.InOrder(d.Index), 7)
		})
	}
}
