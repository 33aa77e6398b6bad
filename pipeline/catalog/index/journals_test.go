package index

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func none(string, Place, Shard) {}

// shardOf returns the i-th shard of a test.
func shardOf(t *testing.T, i int) Shard {
	s := plainShard{decoded: 10}
	return Shard{Object: storage.Object{Path: fmt.Sprint(i)}, Blob: s.pack(t, false)}
}

// A disk that was full for a while ends nothing: what was kept in memory meanwhile is moved to the
// directory, and the next run finds all of it.
func TestJournalsReturnWhenDirectoryIsWritableAgain(t *testing.T) {
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "index")
	trusted, err := TrustIn(t.TempDir())
	require.NoError(t, err)
	store := &Store{dir: dir, name: "x", trusted: trusted, log: slog.New(slog.NewTextHandler(&log, nil))}
	j := store.OpenJournals(nil, none)
	defer j.Close()
	j.Begin("jsonl")
	places := map[int]Place{}
	add := func(i int) {
		p, err := j.Append(shardOf(t, i))
		require.NoError(t, err)
		places[i] = p
	}
	add(0) // the directory does not exist
	j.again = time.Time{}
	add(1) // nor now, which is not logged again
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	require.Nil(t, j.Sparse(), "there is no better place")
	require.NoError(t, os.Mkdir(dir, 0o755))
	add(2)
	require.Nil(t, j.Sparse(), "it is not tried all the time")
	j.again = time.Time{}
	add(3)
	require.Contains(t, log.String(), "is writable again")
	for sparse := j.Sparse(); sparse != nil; sparse = j.Sparse() { // as a live index does
		for i, p := range places {
			if p.In(sparse) {
				add(i)
				j.Drop(p, fmt.Sprint(i))
			}
		}
		j.Retire(sparse)
	}
	j.Close()
	found := map[string]bool{}
	next := store.OpenJournals([]string{"jsonl"}, func(_ string, _ Place, s Shard) { found[s.Object.Path] = true })
	defer next.Close()
	require.Equal(t, map[string]bool{"0": true, "1": true, "2": true, "3": true}, found)
}

// Another process may truncate an entry that it has not written completely, so nothing of it is
// mapped, however long the file is when it is opened.
func TestOnlyCompleteEntriesOfGrowingJournalAreMapped(t *testing.T) {
	store := storeIn(t.TempDir(), io.Discard)
	var err error
	store.trusted, err = TrustIn(store.dir)
	require.NoError(t, err)
	writer := store.OpenJournals(nil, none)
	defer writer.Close()
	writer.Begin("jsonl")
	for i := range 3 {
		_, err := writer.Append(shardOf(t, i))
		require.NoError(t, err)
	}
	g := writer.segments[0]
	whole := g.bytes
	last := shardOf(t, 3)
	entry := append(marshalEntryHead(last), last.Blob...)
	for n := range len(entry) {
		_, err := g.f.WriteAt(entry[:n], whole)
		require.NoError(t, err)
		require.NoError(t, g.f.Truncate(whole+int64(n)))
		found := 0
		reader := store.OpenJournals([]string{"jsonl"}, func(string, Place, Shard) { found++ })
		require.Len(t, reader.segments, 1)
		require.Len(t, reader.segments[0].m.data, int(whole), "%d bytes of an entry", n)
		require.Equal(t, 3, found)
		reader.Close()
	}
	_, err = g.f.WriteAt(entry, whole)
	require.NoError(t, err)
	require.Equal(t, whole+int64(len(entry)), wholeEntries(g.f, int64(len(store.journalHead(""))), whole+int64(len(entry))))
}
