package fetch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// fakeLeaser breaks leases when a test says so.
type fakeLeaser struct {
	breaks uint64
	holds  int
	fallen bool // leases may have been lost
}

func (l *fakeLeaser) Breaks() uint64 { return l.breaks }
func (l *fakeLeaser) Hold(breaks uint64) bool {
	if breaks != l.breaks {
		return false
	}
	l.holds++
	return true
}
func (l *fakeLeaser) Unbroken(breaks uint64) bool    { return breaks == l.breaks && !l.fallen }
func (l *fakeLeaser) Standing() bool                 { return !l.fallen }
func (l *fakeLeaser) Unhold()                        { l.holds-- }
func (l *fakeLeaser) LeaseStats() storage.LeaseStats { return storage.LeaseStats{} }

func TestWhatWasCopiedUnderLeasesIsLookedAtOnlyWhereTheyMayBeLost(t *testing.T) {
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
			readAll(t, d, r, inOrder(d.index), 7)
		})
	}
}

// lendLeased lends records of a file that has a lease.
func lendLeased(t *testing.T) (*fakeLeaser, *Loan) {
	_, store, _, _, l := lendMapped(t, 40)
	leaser := new(fakeLeaser)
	store.Leaser = leaser
	t.Cleanup(l.Release)
	if !l.Leased() {
		t.Skip("there are no leases here")
	}
	return leaser, l
}

func TestALoanIsHeldOnceUntilItsRelease(t *testing.T) {
	leaser, l := lendLeased(t)
	require.True(t, l.Hold())
	require.True(t, l.Hold())
	require.Equal(t, 1, leaser.holds)
	require.NoError(t, l.Check())
	l.Release()
	require.Zero(t, leaser.holds)
}

func TestALoanWhoseLeaseWasBrokenIsNotHeld(t *testing.T) {
	leaser, l := lendLeased(t)
	leaser.breaks++
	require.False(t, l.Hold())
	require.NoError(t, l.Check(), "nothing has changed yet")
	l.Release()
	require.Zero(t, leaser.holds)
}

func TestALoanWithoutLeasesNeedsNoHold(t *testing.T) {
	_, store, _, _, l := lendMapped(t, 3)
	leaser := new(fakeLeaser)
	store.Leaser = leaser
	require.True(t, l.Hold())
	require.Zero(t, leaser.holds)
	l.Release()
}
