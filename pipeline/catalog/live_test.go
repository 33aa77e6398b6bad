package catalog

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLiveIndexMatchesMountOfSameFiles(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 7 {
		w.write(fmt.Sprintf("d%d/%d.tar", i%3, i), tarOf(10+i, fmt.Sprint("s", i)))
	}
	w.write("README.md", []byte("# no shard\n"))
	s := w.mustOpenLiveIndex()
	require.Equal(t, "auto", s.Format().Name)
	require.Empty(t, s.Shards())
	_, err := s.Text(nil)
	require.ErrorContains(t, err, "the format is unknown until the first shard arrives")
	w.look(s)
	require.Equal(t, "tar", s.FormatLine())
	require.Equal(t, ".tar", w.mustSeal(s, s.Shards()).StreamExtension())
	require.Equal(t, LiveIndexCounts{Shards: 7, Records: 91, Units: 91, Bytes: s.Counts().Bytes, PassedOver: 1,
		Journals: 1, JournalBytes: s.Counts().JournalBytes, LiveBytes: s.Counts().LiveBytes}, s.Counts())
	require.Equal(t, pathsOf(s.Shards()), []string{"d0/0.tar", "d0/3.tar", "d0/6.tar", "d1/1.tar", "d1/4.tar", "d2/2.tar", "d2/5.tar"})
	sealed := w.mustSeal(s, s.Shards())
	static := w.mustOpen(func(c *Config) { c.IndexDir = t.TempDir() })
	requireSame(t, static, sealed)
	require.Equal(t, static.PassedOver(), sealed.PassedOver())
	require.Zero(t, w.readsOf(func() { w.look(s) }), "all is known")
	for _, o := range w.files(s) {
		require.True(t, s.Has(o))
	}
}

func TestSealedSnapshotOutlivesEverything(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 5 {
		w.write(fmt.Sprintf("%d.jsonl", i), linesOf(30+i, fmt.Sprint(i)))
	}
	s := w.mustOpenLiveIndex()
	w.look(s)
	first := w.mustSeal(s, s.Shards())
	static := w.mustOpen(func(c *Config) { c.IndexDir = t.TempDir() })
	for i := range 5 {
		w.remove(fmt.Sprintf("%d.jsonl", i))
		w.write(fmt.Sprintf("new%d.jsonl", i), linesOf(3+i, fmt.Sprint(i)))
		w.look(s)
		w.mustSeal(s, s.Shards())
		requireSame(t, static, first)
	}
	require.NoError(t, s.Close())
	requireSame(t, static, first)
	_, err := s.Seal(context.Background(), nil)
	require.ErrorIs(t, err, errLiveIndexClosed)
	require.ErrorIs(t, s.Index(context.Background(), nil), errLiveIndexClosed)
}
