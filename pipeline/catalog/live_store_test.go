package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestLiveIndexReusesWorkOfKilledOne(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 6 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
	}
	first := w.mustOpenLiveIndex()
	w.look(first)
	want := first.Shards()
	w.killed(func(int64) int64 { return 1 })
	s := w.mustOpenLiveIndex()
	require.Empty(t, s.Shards(), "nobody has said that they are there")
	var read sync.Map
	w.onRead = func(o storage.Object) error { read.Store(o.Path, true); return nil }
	w.look(s)
	w.onRead = nil
	n := 0
	read.Range(func(any, any) bool { n++; return true })
	require.Equal(t, 1, n, "what was in flight alone is read again")
	require.ElementsMatch(t, want, s.Shards())
	require.Equal(t, 2, s.Counts().Journals)
}

func TestLiveIndexReusesIndexOfMount(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 6 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
	}
	static := w.mustOpen()
	s := w.mustOpenLiveIndex()
	require.Zero(t, w.readsOf(func() { w.look(s) }))
	requireSame(t, static, w.mustSeal(s, s.Shards()))
	require.Empty(t, w.indexFiles("*.journal"), "nothing was new")
	require.NoError(t, s.Close())
	w.write("6.tar", tarOf(3, "s"))
	s = w.mustOpenLiveIndex()
	w.look(s)
	require.NoError(t, s.Close())
	look := w.readsOf(func() { require.EqualValues(t, 7, w.mustOpen().Shards()) })
	require.LessOrEqual(t, look, int64(1), "a mount takes over those of a live index; it looks whether the .tar is one of games")
	require.Empty(t, w.indexFiles("*.journal"))
}

func TestTwoLiveIndexesShareAnIndexDirectory(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 4 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
	}
	a := w.mustOpenLiveIndex()
	w.look(a)
	b := w.mustOpenLiveIndex()
	require.Zero(t, w.readsOf(func() { w.look(b) }), "it reads the journals of the other one")
	ca, cb := w.mustSeal(a, a.Shards()), w.mustSeal(b, b.Shards())
	require.Equal(t, ca.Identity(), cb.Identity())
	var both sync.WaitGroup
	for i, s := range []*LiveIndex{a, b} {
		both.Go(func() {
			for n := range 20 {
				path := fmt.Sprintf("x%d-%d.tar", i, n)
				w.write(path, tarOf(3, path))
				if err := s.Index(context.Background(), []storage.Object{w.object(path)}); err != nil {
					t.Error(err)
				}
				text, err := s.Text(s.Shards())
				if err != nil {
					t.Error(err)
					return
				}
				c, err := s.Seal(context.Background(), text)
				if err != nil {
					t.Error(err)
					return
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	requireSame(t, ca, cb)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	s := w.mustOpenLiveIndex()
	require.Zero(t, w.readsOf(func() { w.told = nil; w.look(s) }), "what both have indexed is there")
	require.Len(t, s.Shards(), 44)
}

// Most new files are soon replaced or removed. What is kept of them is bounded.
func TestJournalsDoNotGrowForever(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	s, err := w.openLive(func(c *Config) { c.Format.Name = "tar" })
	require.NoError(t, err)
	// A shard of more than 1 MiB in the index, again and again.
	packer := index.NewPacker(true, false, index.MaxPackedBytes)
	for i := range 80_000 {
		require.NoError(t, packer.Add(extentAt(i)))
	}
	blob, err := packer.Finish(summaryOf(80_000))
	require.NoError(t, err)
	var most int64
	put := func(i int, path string) {
		o := storage.Object{Path: path, SizeBytes: 1, Version: storage.Version{Inode: uint64(i)}}
		s.reading = map[string]storage.Object{path: o}
		k, err := s.keep(index.Shard{Object: o, Blob: blob})
		require.NoError(t, err)
		s.admit(k)
		require.NoError(t, s.tidy())
		most = max(most, s.Counts().JournalBytes)
	}
	put(0, "stays.tar")
	text, err := s.Text(s.Shards())
	require.NoError(t, err)
	c, err := s.Seal(context.Background(), text)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for i := range 300 {
		put(i+1, "replaced.tar")
	}
	for i := range 100 {
		put(i+1, fmt.Sprintf("goes%d.tar", i))
		s.Forget(fmt.Sprintf("goes%d.tar", i))
		w.advance(10 * time.Minute)
	}
	require.Equal(t, 2, s.Counts().Shards)
	live := int64(8 * len(blob)) // two that exist, six that were removed in the last hour
	require.Less(t, most, 2*live+4*32<<20)
	var bytes int64
	for _, path := range w.indexFiles("*.journal") {
		info, err := os.Stat(path)
		require.NoError(t, err)
		bytes += info.Size()
	}
	require.Equal(t, s.Counts().JournalBytes, bytes, "what was emptied is removed")
	require.EqualValues(t, 80_000, c.Records())
	sizes := make([]int64, 1)
	c.Sizes([]uint64{79_999}, sizes)
	require.Equal(t, extentAt(79_999).SizeBytes, sizes[0])
	require.NoError(t, s.Close())

	s, err = w.openLive(func(c *Config) { c.Format.Name = "tar" })
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Contains(t, s.known, "stays.tar")
	require.EqualValues(t, 300, s.known["replaced.tar"].inode, "the last one counts")
	w.advance(2 * time.Hour)
	require.NoError(t, s.tidy())
	require.Empty(t, s.known, "nobody has seen them for an hour")
	require.Empty(t, w.indexFiles("*.journal"))
}

// While a snapshot is being sealed, retired journals stay mapped. They must not be compacted again:
// otherwise tidy would not end before the seal does.
func TestRetiredJournalsAreTruncatedOnce(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	s, err := w.openLive(func(c *Config) { c.Format.Name = "tar" })
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	packer := index.NewPacker(true, false, index.MaxPackedBytes)
	for i := range 80_000 {
		require.NoError(t, packer.Add(extentAt(i)))
	}
	blob, err := packer.Finish(summaryOf(80_000))
	require.NoError(t, err)
	for i := range 100 { // more than one journal, the first without anything in use
		o := storage.Object{Path: "replaced.tar", SizeBytes: 1, Version: storage.Version{Inode: uint64(i)}}
		s.reading = map[string]storage.Object{o.Path: o}
		k, err := s.keep(index.Shard{Object: o, Blob: blob})
		require.NoError(t, err)
		s.admit(k)
	}
	s.journals.Acquire() // as Seal does
	defer s.journals.Release()
	retired := 0
	for g := s.journals.Sparse(); g != nil; g = s.journals.Sparse() {
		retired++
		require.Less(t, retired, 100, "it ends")
		s.journals.Retire(g)
	}
	require.NotZero(t, retired)
	require.Len(t, w.indexFiles("*.journal"), s.Counts().Journals, "they are counted no more")
}

func TestSnapshotOfAbsentShards(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 3 {
		w.write(fmt.Sprintf("training.%d.tar", i), tarOf(10, "s"))
	}
	s := w.mustOpenLiveIndex()
	seal := func(text string) error {
		_, err := s.Seal(context.Background(), []byte(text))
		return err
	}
	w.look(s)
	size := len(tarOf(10, "s"))
	line := func(records int, path string) string {
		return fmt.Sprintf("%d %d %d %s\n", records, size, records, path)
	}
	head := "lsiofs/1 dataset tar\n"
	err := seal(head + line(10, "training.0.tar") + line(10, "training.17.tar"))
	var lacking *LackingError
	require.ErrorAs(t, err, &lacking)
	require.Equal(t, []string{"training.17.tar"}, lacking.Paths)
	require.EqualError(t, err, "training.17.tar is in the snapshot but not here: wait until it has been copied; the next open looks for it again")
	var more strings.Builder
	for i := range 1200 {
		more.WriteString(line(1, fmt.Sprintf("x%04d", i)))
	}
	require.ErrorContains(t, seal(head+line(10, "training.0.tar")+more.String()), "x0000 and 1 199 more are in the snapshot but not here: ")

	err = seal(head + line(10, "training.0.tar") + line(10_000, "training.1.tar"))
	var differs *DiffersError
	require.ErrorAs(t, err, &differs)
	require.Equal(t, "training.1.tar", differs.Path)
	require.ErrorContains(t, err, "training.1.tar: 10 records here, 10 000 in the snapshot: it was changed after the snapshot")
	require.ErrorContains(t, seal(head+fmt.Sprintf("10 %d 10 training.1.tar\n", size+1)), fmt.Sprintf("decoded bytes here, %s in the snapshot", grouped(uint64(size+1))))
	require.ErrorContains(t, seal(head+fmt.Sprintf("10 %d 9 training.1.tar\n", size)), "10 entry points here, 9 in the snapshot")

	w.replace("training.1.tar", tarOf(10, "s")[:512])
	w.look(s)
	require.NoError(t, seal(head+line(10, "training.1.tar")), "it was here, and reads of it say that it has changed")
	require.ErrorContains(t, seal(head+line(11, "training.1.tar")), "training.1.tar is in the snapshot but not here (record 0 at offset 0")

	for _, tt := range []struct{ text, want string }{
		{"lsiofs/1 dataset jsonl\n" + line(10, "training.0.tar"), "its shards have format jsonl, and those here have format tar"},
		{head, "holds no records"},
		{"", "does not begin like the text of a snapshot"},
		{head + "x", `line 2 does not describe a shard: "x"`},
		{head + "1 2 3 a", "line 2 does not describe a shard"},
		{head + "01 2 3 a\n", "line 2 does not describe a shard"},
		{head + "1 2 3 \n", "line 2 does not describe a shard"},
		{head + "1 2 -3 a\n", "line 2 does not describe a shard"},
		{head + "1 2 3 b\n1 2 3 a\n", "line 3: a must come after b"},
		{head + "1 2 3 a\n1 2 3 a\n", "line 3: a must come after a"},
	} {
		require.ErrorContains(t, seal(tt.text), tt.want, tt.text)
	}
}

func TestSnapshotOpensMatchingStoredIndex(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	var sets [][]LiveShard
	s := w.mustOpenLiveIndex()
	for i := range 6 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
		w.look(s)
		sets = append(sets, s.Shards())
	}
	held := w.mustSeal(s, sets[0])
	path := filepath.Join(w.index, w.indexName()+"."+held.Fingerprint()[:16]+".index")
	require.FileExists(t, path)
	stat := func() fs.FileInfo {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info
	}
	before := stat()
	require.True(t, os.SameFile(before, func() fs.FileInfo { w.mustSeal(s, sets[0]); return stat() }()), "it is not written again")
	for _, set := range sets[1:] {
		text, err := s.Text(set)
		require.NoError(t, err)
		c, err := s.Seal(context.Background(), text)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	names := func() (kept []int) {
		for i, set := range sets {
			text, err := s.Text(set)
			require.NoError(t, err)
			if _, err := os.Stat(filepath.Join(w.index, w.indexName()+"."+hexOf(text)[:16]+".index")); err == nil {
				kept = append(kept, i)
			}
		}
		return kept
	}
	require.Equal(t, []int{0, 4, 5}, names(), "the newest two, and the one that is open")
	require.Empty(t, w.indexFiles("*.tmp"))

	// The same text, and another file.
	w.replace("0.tar", tarOf(10, "s"))
	w.look(s)
	again := w.mustSeal(s, sets[0])
	require.Equal(t, held.Fingerprint(), again.Fingerprint())
	require.NotEqual(t, held.Identity(), again.Identity())
	require.False(t, os.SameFile(before, stat()))
	require.Equal(t, w.object("0.tar"), again.Shard(0).Object)

	// A damaged one.
	require.NoError(t, os.WriteFile(path, []byte("lsiofsIX and nothing"), 0o600))
	requireSame(t, again, w.mustSeal(s, sets[0]))
}

func TestLiveIndexWithoutDirectoryWorksInMemory(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	require.NoError(t, os.WriteFile(w.index, []byte("in the way"), 0o600))
	for i := range 4 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
	}
	s := w.mustOpenLiveIndex()
	require.Empty(t, s.IndexDir())
	w.look(s)
	requireSame(t, w.mustOpen(func(c *Config) { c.IndexDir = t.TempDir() }), w.mustSeal(s, s.Shards()))
}

func hexOf(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}

// extentAt returns a record whose size takes many bits.
func extentAt(i int) format.Extent {
	return format.Extent{OffsetBytes: int64(i) << 40, SizeBytes: int64(i) * 0x9E3779B9 % (1 << 38), KeyHash: uint64(i)}
}

func summaryOf(records int) format.Summary {
	return format.Summary{DecodedBytes: int64(records) << 40}
}

func TestLiveIndexContinuesInMemoryWhenDirectoryIsRemoved(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	s := w.mustOpenLiveIndex()
	require.NoError(t, os.RemoveAll(w.index))
	for i := range 4 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
	}
	w.look(s)
	require.Equal(t, 1, w.log.count("kept in memory, and built again by the next run"))
	requireSame(t, w.mustOpen(func(c *Config) { c.IndexDir = t.TempDir() }), w.mustSeal(s, s.Shards()))
}
