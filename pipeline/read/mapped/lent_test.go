package mapped

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// lend adds record 3 of each of the pieces, which are mapped.
func (o *owner) lend(l *Lent, pieces ...int) {
	o.t.Helper()
	for _, piece := range pieces {
		r := o.tables[piece]
		if r == nil {
			r = o.ask(piece)
		}
		require.True(o.t, r.PinResident(o.maps.Evictions()))
		l.Add(r, 3)
	}
}

func TestCopiesUnderLeasesAreCheckedOnlyIfLeaseMayBeLost(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(s *files, o *owner, l *Lent)
		looks   int64
	}{
		"nothing happens":               {func(*files, *owner, *Lent) {}, 0},
		"somebody waits to write":       {func(s *files, _ *owner, _ *Lent) { s.breaks.Add(1) }, 2},
		"there was no lease from then":  {func(s *files, _ *owner, l *Lent) { s.unleased.Store(true); require.False(t, l.Leased()) }, 2},
		"more was lent, and not asked":  {func(_ *files, o *owner, l *Lent) { o.lend(l, 30) }, 3},
		"more was lent, and asked":      {func(_ *files, o *owner, l *Lent) { o.lend(l, 30); require.True(t, l.Leased()) }, 0},
		"it was given back, and others": {func(_ *files, o *owner, l *Lent) { l.Release(); o.lend(l, 20) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(files)
			_, o := newMaps(t, s, nil)
			var l Lent
			o.lend(&l, 10, 20, 11, 21)
			require.True(t, l.Leased())
			c.happens(s, o, &l)
			require.NoError(t, l.Check())
			require.Equal(t, c.looks, s.checks.Load(), "each file is looked at once")
			l.Release()
		})
	}
}

func TestChangedFileIsReportedAndNotMappedAgain(t *testing.T) {
	s := new(files)
	m, o := newMaps(t, s, nil)
	o.ask(12)
	var l Lent
	o.lend(&l, 20, 10)
	s.changed.Store(true)
	err := l.Check()
	require.ErrorIs(t, err, storage.ErrChanged)
	require.EqualError(t, err, "record 3 of piece 20: "+s.last(2).Check().Error(), "as its owner says it")
	require.Equal(t, []int{20}, o.forgotten)
	require.False(t, m.Request(new(Work), request(21)))
	l.Release()
	o.lend(&l, 10)
	require.ErrorIs(t, l.Fault(), storage.ErrChanged)
	require.Equal(t, []string{"record 3 of piece 20", "record 3 of piece 10"}, o.lost)
	require.ElementsMatch(t, []int{20, 10, 12}, o.forgotten, "all of the shard")
	l.Release()
}

func TestFaultInUnchangedFilesFailsAllPinnedRecords(t *testing.T) {
	s := new(files)
	_, o := newMaps(t, s, nil)
	o.ask(12)
	var l Lent
	o.lend(&l, 10, 20)
	bytes := o.tables[10].Bytes
	err := l.Fault()
	require.ErrorIs(t, err, ErrFault)
	require.ErrorContains(t, err, "record 3 of piece 10: ")
	require.ElementsMatch(t, []int{10, 20}, o.forgotten)
	require.EqualValues(t, 0, bytes[0], "what is pinned stays")
	l.Release()
	require.NotNil(t, o.ask(10), "it may be mapped again")
}

func TestEmptyPinnedRecordsNeedNoCheck(t *testing.T) {
	var l Lent
	require.False(t, l.Mapped())
	require.True(t, l.Leased())
	require.NoError(t, l.Check())
	require.NoError(t, l.Fault())
	l.Release()
}

func TestPinningAgainAllocatesNothing(t *testing.T) {
	_, o := newMaps(t, new(files), nil)
	r := o.ask(10)
	var l Lent
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range 50 {
			if !r.PinResident(o.maps.Evictions()) {
				t.Fatal("it is mapped")
			}
			l.Add(r, i)
		}
		if l.Len() != 50 || !l.Mapped() || !l.Leased() || l.Check() != nil {
			t.Fatal("it is leased")
		}
		l.Release()
	}))
	require.Zero(t, r.Pins.Count())
}
