package diskcache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Of three compressed objects the first is completely decoded in the cache and the second partly.
func TestFillLeavesOutObjectsThatAreDecodedInTheCache(t *testing.T) {
	w := newWorld(t, objectsOf(3, mib))
	s := w.open(nil)
	var all []storage.Object
	for i := range 3 {
		all = append(all, w.objects[fmt.Sprint(i)])
	}
	c := keptConfig(2, "v1")
	shelf := keptShelf(t, s, 2, "v1")
	d := openKept(t, shelf, 0, Ours)
	fillDecoded(t, d, decodedBytes(0, keptShardBytes))
	d.Leave(Keep)
	begun := openKept(t, shelf, 1, Ours)
	require.NoError(t, begun.Write(decodedBytes(1, keptShardBytes)[:64<<10]))

	s.FillOnceRead(all)
	for shard := range 2 {
		id, _ := c.Identify(shard)
		s.DecodedOf(all[shard], id, keptShardBytes)
	}
	w.read(s, "2", 0, 10) // starts the fill
	filled := func() bool { settle(s); return s.Stats().Fill == 1 }
	waitFor(t, filled)
	require.Equal(t, 2, s.Holds(all), "the second and the third are filled")
	require.False(t, s.holdsRange(Range{all[0], 0, pageBytes}))
	require.EqualValues(t, 2*mib, w.bytes.Load(), "nothing is read of the first")

	s.keeper.look(0, false)
	waitFor(t, filled)
	require.EqualValues(t, 2*mib, w.bytes.Load(), "it is still there")

	openKept(t, shelf, 0, Whole).Leave(Remove)
	settle(s)
	s.keeper.look(0, false)
	waitFor(t, filled)
	require.EqualValues(t, 3*mib, w.bytes.Load(), "it is read once its decoded form is gone")
	require.Equal(t, 3, s.Holds(all))
	begun.Leave(Remove)
	require.NoError(t, shelf.Close())
}

// A fill that found no room within an object begins with the next one at its front.
func TestFillThatContinuesBeginsAtTheFront(t *testing.T) {
	x := Range{storage.Object{Path: "x", SizeBytes: mib}, 0, mib}
	by := key{1}
	a := ahead{todo: []Range{x}, at: 1, off: 5 * pageBytes, leftOut: map[Range]key{x: by}, ends: make(chan struct{}), wake: make(chan struct{}, 1)}
	a.fillGone(map[key]bool{by: true})
	require.Equal(t, []Range{x}, a.todo)
	require.Zero(t, a.at)
	require.Zero(t, a.off)
	require.Empty(t, a.leftOut)
}

// What the user asks to be fetched is fetched: decoded shards serve only those who decode alike.
func TestWarmFetchesObjectsThatAreDecodedInTheCacheToo(t *testing.T) {
	w := newWorld(t, objectsOf(1, mib))
	s := w.open(nil)
	o := w.objects["0"]
	shelf := keptShelf(t, s, 1, "v1")
	d := openKept(t, shelf, 0, Ours)
	fillDecoded(t, d, decodedBytes(0, keptShardBytes))
	d.Leave(Keep)
	id, _ := keptConfig(1, "v1").Identify(0)
	s.DecodedOf(o, id, keptShardBytes)
	s.Fill([]storage.Object{o})
	require.NoError(t, s.Warm(t.Context()))
	require.Equal(t, 1, s.Holds([]storage.Object{o}))
	require.NoError(t, shelf.Close())
}
