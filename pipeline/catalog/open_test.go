package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestRecordsOfEachFormatLieWhereTheyShould(t *testing.T) {
	lines := linesOf(300, "a")
	tests := []struct {
		name   string
		file   string
		data   []byte
		format spec.Format
		want   uint64
		ext    string
	}{
		{"tar", "a.tar", tarOf(300, "s"), spec.Format{Name: "auto"}, 300, ".tar"},
		{"tar in gzip", "a.tgz", gz(tarOf(300, "s")), spec.Format{Name: "auto"}, 300, ".tar"},
		{"jsonl", "a.jsonl", lines, spec.Format{Name: "auto"}, 300, ".jsonl"},
		{"jsonl in two members of gzip", "a.jsonl.gz", gz(lines, lines), spec.Format{Name: "auto"}, 600, ".jsonl"},
		{"tfrecord", "a.tfrecord", framesOf(300), spec.Format{Name: "auto"}, 300, ".tfrecord"},
		{"lines", "a.txt", lines, spec.Format{Name: "auto"}, 300, ".txt"},
		{"fixed", "a.bin", make([]byte, 1000), spec.Format{Name: "fixed", RecordBytes: 10}, 100, ".bin"},
		{"fixed that overlap", "a.bin", make([]byte, 1024+1000), spec.Format{Name: "fixed", RecordBytes: 10, StrideBytes: 8, HeaderBytes: 1024}, 124, ".bin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(tt.file, tt.data)
			c := w.mustOpen(func(c *Config) { c.Format = tt.format })
			require.Equal(t, tt.want, c.Records())
			require.Equal(t, tt.ext, c.StreamExtension())
			numbers := make([]uint64, tt.want)
			for i := range numbers {
				numbers[i] = uint64(i)
			}
			extents := make([]Extent, tt.want)
			c.Extents(numbers, extents)
			var sum int64
			for i, e := range extents {
				require.EqualValues(t, i, e.Ordinal)
				sum += e.SizeBytes
			}
			require.Equal(t, sum, c.StreamBytes())
			require.LessOrEqual(t, extents[tt.want-1].OffsetBytes+extents[tt.want-1].SizeBytes, c.Shard(0).DecodedBytes)
			again := w.mustOpen(func(c *Config) { c.Format = tt.format })
			require.Equal(t, c.image.data, again.image.data)
		})
	}
}

func TestTheFingerprintIsThatOfOrderMD(t *testing.T) {
	w := newWorld(t)
	two := gz(linesOf(5, "a"), linesOf(7, "b"))
	w.write("b.jsonl.gz", two)
	w.write("a/z.jsonl", linesOf(3, "c"))
	w.write("notes.md", []byte("# no shard\n"))
	c := w.mustOpen()
	text := fmt.Sprintf("lsiofs/1 dataset jsonl\n3 %d 3 a/z.jsonl\n12 %d 2 b.jsonl.gz\n",
		len(linesOf(3, "c")), len(linesOf(5, "a"))+len(linesOf(7, "b")))
	sum := sha256.Sum256([]byte(text))
	require.Equal(t, hex.EncodeToString(sum[:]), c.Fingerprint())
	require.Equal(t, 1, c.PassedOver())
	id := sha256.Sum256([]byte("lsiofs/1 shard b.jsonl.gz"))
	require.Equal(t, hex.EncodeToString(id[:8]), fmt.Sprintf("%016x", c.Shard(1).IDPrefix))
	require.Equal(t, Entry{}, c.Entry(1, 4))
	require.Equal(t, uint64(5), c.Entry(1, 11).Ordinal)
	require.EqualValues(t, len(linesOf(5, "a")), c.Entry(1, 5).DecodedBytes)
	require.EqualValues(t, len(gz(linesOf(5, "a"))), c.Entry(1, 5).RawBytes)
}

func TestAnUnchangedDatasetOpensWithoutOpeningAShard(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(20, "s"))
	}
	w.write("README", []byte("judged by its content\n"))
	w.write("data-00000-of-00001", tarOf(9, "t")) // likewise, and a shard
	var last Progress
	first := w.mustOpen(func(c *Config) { c.Progress = func(p Progress) { last = p } })
	require.True(t, last.Done)
	require.Equal(t, 6, last.Shards)
	require.Equal(t, last.BytesTotal, last.Bytes)
	require.Equal(t, uint64(109), last.Records)
	require.Zero(t, w.readsOf(func() {
		second := w.mustOpen(func(c *Config) { c.Progress = func(p Progress) { last = p } })
		require.Equal(t, first.Fingerprint(), second.Fingerprint())
		require.Equal(t, 1, second.PassedOver())
	}))
	require.Equal(t, 6, last.Reused)
	require.Equal(t, uint64(109), last.Records)
	require.Positive(t, w.readsOf(func() { w.mustOpen(func(c *Config) { c.Rebuild = true }) }))
	require.Len(t, w.indexFiles("*"), 2, "the index and one fingerprint's lines")
	info, err := os.Stat(w.indexFiles("*.index")[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(w.index)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestAChangedShardIsIndexedAgainAlone(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.write(fmt.Sprintf("%d.jsonl", i), linesOf(50, fmt.Sprint(i)))
	}
	before := w.mustOpen()
	w.write("3.jsonl", linesOf(60, "new"))
	var touched []string
	w.onRead = func(o storage.Object) error { touched = append(touched, o.Path); return nil }
	after := w.mustOpen()
	require.Equal(t, []string{"3.jsonl"}, touched)
	require.Equal(t, uint64(260), after.Records())
	require.Equal(t, "1 of 5 shards differ: 3.jsonl has 60 records, and had 50", after.Explain(before.Fingerprint()))
	require.Equal(t, "it is the same dataset", after.Explain(after.Fingerprint()))
	require.Empty(t, after.Explain(strings.Repeat("0", 64)))
	require.Empty(t, after.Explain("../../x"))

	touched = nil
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(w.data, "1.jsonl"), later, later))
	require.Equal(t, after.Fingerprint(), w.mustOpen().Fingerprint())
	require.Equal(t, []string{"1.jsonl"}, touched)

	touched = nil
	require.NoError(t, os.Remove(filepath.Join(w.data, "0.jsonl")))
	require.Equal(t, uint64(210), w.mustOpen().Records())
	require.Empty(t, touched, "the others are still known")
}

func TestAnInterruptedBuildGoesOnWhereItStopped(t *testing.T) {
	// With a core a shard, none would be finished when the first half is read.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	w := newWorld(t)
	const shards = 30
	for i := range shards {
		w.write(fmt.Sprintf("%02d.jsonl", i), linesOf(50, fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	read := map[string]bool{}
	w.onRead = func(o storage.Object) error {
		mu.Lock()
		defer mu.Unlock()
		if read[o.Path] = true; len(read) == shards/2 {
			cancel()
		}
		return nil
	}
	_, _, err := Open(ctx, w.config())
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, w.indexFiles("*.journal"), 1)
	first := len(read)
	require.Less(t, first, shards)
	// The tail of a journal is lost with its process; what is before it counts.
	journal := w.indexFiles("*.journal")[0]
	info, err := os.Stat(journal)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(journal, info.Size()-1))
	read = map[string]bool{}
	c := w.mustOpen()
	require.Equal(t, uint64(50*shards), c.Records())
	require.Less(t, len(read), shards)
	require.GreaterOrEqual(t, len(read), shards-first)
	require.Empty(t, w.indexFiles("*.journal"), "sealed")
	fresh := w.mustOpen(func(c *Config) { c.Rebuild = true })
	require.Equal(t, c.image.data, fresh.image.data)
}

func TestAJournalOfALivingProcessIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	config := w.config()
	target, err := parseTarget(w.data)
	require.NoError(t, err)
	other := newJournal(openStore(&config, &target, config.Log), "jsonl", config.Log)
	require.NoError(t, other.begin())
	w.mustOpen()
	require.Len(t, w.indexFiles("*.journal"), 1)
	other.close(true)
	w.mustOpen(func(c *Config) { c.Rebuild = true })
	require.Empty(t, w.indexFiles("*.journal"))
}

func TestTwoBuildsAtOnceDoNoHarm(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.write(fmt.Sprintf("%02d.tar", i), tarOf(30, "s"))
	}
	var g errgroup.Group
	catalogs := make([]*Catalog, 4)
	for i := range catalogs {
		g.Go(func() (err error) {
			catalogs[i], err = w.open()
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, c := range catalogs {
		require.Equal(t, uint64(600), c.Records())
		require.Equal(t, catalogs[0].image.data, c.image.data)
	}
	for _, c := range catalogs {
		require.NoError(t, c.Close())
	}
	require.Len(t, w.indexFiles("*.index"), 1)
	require.Empty(t, w.indexFiles("*.tmp"))
	require.Zero(t, w.readsOf(func() { w.mustOpen() }))
	require.NotContains(t, w.log.String(), "level=WARN")
}

func TestADamagedStoredIndexIsBuiltAgain(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	good := w.mustOpen()
	path := w.indexFiles("*.index")[0]
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, at := range []int{3, 9, 100, len(stored) / 2, len(stored) - 1} {
		bad := append([]byte(nil), stored...)
		bad[at] ^= 4
		require.NoError(t, os.WriteFile(path+"x", bad, 0o600))
		require.NoError(t, os.Rename(path+"x", path))
		require.Positive(t, w.readsOf(func() { require.Equal(t, good.Fingerprint(), w.mustOpen().Fingerprint()) }))
		require.Contains(t, w.log.String(), "stored index can't be used and is built again")
		now, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, stored, now)
	}
}

func TestAnIndexDirectoryThatCantBeWrittenIsAWarning(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	blocker := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocker, nil, 0o600))
	for _, dir := range []string{filepath.Join(blocker, "index"), "/proc/self/fdinfo"} {
		w.log.text.Reset()
		c := w.mustOpen(func(c *Config) { c.IndexDir = dir })
		require.Equal(t, uint64(50), c.Records())
		require.Contains(t, w.log.String(), "level=WARN")
		require.Contains(t, w.log.String(), "index")
		require.Empty(t, c.Explain(c.Fingerprint()))
	}
}

func TestAFullDiskEndsInMemory(t *testing.T) {
	w := newWorld(t)
	config := w.config()
	j := newJournal(&store{dir: t.TempDir(), name: "x", log: config.Log}, "jsonl", config.Log)
	defer j.close(false)
	s := plainShard{decoded: 10}
	b := s.pack(t, false)
	add := func(i int) {
		require.NoError(t, j.append(i, packed{object: storage.Object{Path: fmt.Sprint(i)}, blob: b}))
		require.NoError(t, j.flush())
	}
	add(0)
	readOnly, err := os.Open(j.parts[0].f.Name())
	require.NoError(t, err)
	require.NoError(t, j.parts[0].f.Close())
	j.parts[0].f = readOnly // writes fail from here on
	add(1)
	add(2)
	require.True(t, j.inMemory())
	found := map[int]blob{}
	maps, err := j.blobs(func(i int, b blob) { found[i] = b })
	require.NoError(t, err)
	require.Equal(t, map[int]blob{0: b, 1: b, 2: b}, found)
	for _, m := range maps {
		require.NoError(t, m.Close())
	}
	require.Equal(t, 1, strings.Count(w.log.String(), "level=WARN"))
}

func TestTheDatasetsOwnIndexDirectoryIsUsedWhenItIsThere(t *testing.T) {
	w := newWorld(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(w.index, "cache"))
	w.write("a.jsonl", linesOf(5, "a"))
	w.mustOpen(func(c *Config) { c.IndexDir = "" })
	require.Len(t, w.indexFiles("cache/lsiofs/*.index"), 1)
	require.NoError(t, os.Mkdir(filepath.Join(w.data, ".lsiofs"), 0o700))
	w.mustOpen(func(c *Config) { c.IndexDir = "" })
	own, err := filepath.Glob(filepath.Join(w.data, ".lsiofs", "*.index"))
	require.NoError(t, err)
	require.Len(t, own, 1)
	// An index directory inside the dataset holds no shards.
	c := w.mustOpen(func(c *Config) { c.IndexDir = filepath.Join(w.data, "visible") })
	c2 := w.mustOpen(func(c *Config) { c.IndexDir = filepath.Join(w.data, "visible") })
	require.Zero(t, c.PassedOver()+c2.PassedOver())
}

func TestBadInputIsRefusedInWordsOrSkipped(t *testing.T) {
	whole := tarOf(20, "s")
	badSum := append([]byte(nil), whole...)
	badSum[whole40(whole)+150] ^= 1
	frames := framesOf(20)
	badCRC := append([]byte(nil), frames...)
	at := 0
	for range 10 {
		at += 16 + int(badCRC[at])
	}
	badCRC[at+8] ^= 1
	zipped := gz(linesOf(20, "a"), linesOf(3000, "b"))
	tests := []struct {
		name string
		file string
		data []byte
		form spec.Format
		want []string
		left uint64 // with skip, of this shard
	}{
		{"a truncated tar", "b.tar", whole[:len(whole)-1024-600], spec.Format{Name: "auto"}, []string{"b.tar", "record 19", "offset"}, 19},
		{"a wrong checksum", "b.tar", badSum, spec.Format{Name: "auto"}, []string{"b.tar", "record", "offset", "checksum"}, 9},
		{"a gz cut in the middle", "b.jsonl.gz", zipped[:len(zipped)-30], spec.Format{Name: "auto"}, []string{"b.jsonl.gz", "offset", "member at byte"}, 20},
		{"a bad length CRC", "b.tfrecord", badCRC, spec.Format{Name: "auto"}, []string{"b.tfrecord", "record 10 at offset"}, 10},
		{"no multiple of the record size", "b.bin", make([]byte, 1005), spec.Format{Name: "fixed", RecordBytes: 10}, []string{"b.bin", "offset 1000"}, 100},
		{"an empty file", "b.tar", nil, spec.Format{Name: "auto"}, []string{"b.tar", "empty"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(tt.file, tt.data)
			good := strings.Replace(tt.file, "b.", "a.", 1)
			content := map[string][]byte{".tar": tarOf(4, "g"), ".gz": gz(linesOf(4, "g")), ".tfrecord": framesOf(4), ".bin": make([]byte, 40)}
			w.write(good, content[filepath.Ext(good)])
			set := func(c *Config) { c.Format = tt.form }
			_, err := w.open(set)
			require.Error(t, err)
			for _, part := range append(tt.want, "--on-corrupt skip leaves it out") {
				require.ErrorContains(t, err, part)
			}
			c := w.mustOpen(set, skipping)
			require.Equal(t, 4+tt.left, c.Records())
			require.Len(t, c.Damaged(), 1)
			require.Equal(t, tt.file, c.Damaged()[0].Path)
			require.Zero(t, w.readsOf(func() {
				require.Equal(t, c.Damaged(), w.mustOpen(set, skipping).Damaged())
			}))
		})
	}
}

// whole40 is where the first header of sample 10 begins.
func whole40(archive []byte) int { return strings.Index(string(archive), "s0010.") }

func TestAnUnreadableFileIsNamedOrLeftOutForThisRun(t *testing.T) {
	w := newWorld(t)
	w.write("a.tar", tarOf(4, "s"))
	w.write("b.tar", tarOf(4, "s"))
	denied := errors.New("permission denied")
	w.onRead = func(o storage.Object) error {
		if o.Path == "b.tar" {
			return denied
		}
		return nil
	}
	_, err := w.open()
	require.ErrorIs(t, err, denied)
	require.ErrorContains(t, err, "b.tar")
	require.ErrorContains(t, err, "--on-corrupt skip")
	c := w.mustOpen(skipping)
	require.Equal(t, uint64(4), c.Records())
	require.Contains(t, c.Damaged()[0].Error.Error(), "the file can't be read: permission denied")
	w.onRead = nil
	require.Equal(t, uint64(8), w.mustOpen(skipping).Records(), "it is tried again")
}

func TestAShardThatChangesWhileItIsIndexedIsAnError(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	w.onRead = func(o storage.Object) error {
		later := time.Now().Add(time.Hour)
		return os.Chtimes(filepath.Join(w.data, "a.jsonl"), later, later)
	}
	for _, policy := range []func(*Config){func(*Config) {}, skipping} {
		_, err := w.open(policy)
		require.ErrorIs(t, err, storage.ErrChanged)
		require.ErrorContains(t, err, "a.jsonl")
		require.NoError(t, os.Chtimes(filepath.Join(w.data, "a.jsonl"), time.Unix(1, 0), time.Unix(1, 0)))
	}
}

func TestADatasetWithoutRecordsIsRefused(t *testing.T) {
	w := newWorld(t)
	_, err := w.open()
	require.ErrorContains(t, err, "holds no files")
	w.write("a.jsonl", []byte("\n \n"))
	_, err = w.open()
	require.ErrorContains(t, err, "holds no records")
	_, err = w.open(dataset(filepath.Join(w.data, "nothing")))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "nothing does not exist")
	w.write("b.jsonl", nil)
	_, err = w.open(skipping)
	require.ErrorContains(t, err, "1 of them damaged")
}
