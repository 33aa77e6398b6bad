package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index/indextest"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Golden indexes: testdata/golden/<version>.<generation>-<dataset> has shards, the index that
// lsiofs made from them when that version was its newest, and the full content of the index at that
// time, as text.
//
// A new version or generation adds directories: raise index.Version or index.Generation, run
//
//	go test ./pipeline/catalog -run Golden -update
//
// and commit the new files. Existing ones are never changed or removed, and -update does not touch
// them: indexes like these are on the disks of users, and their content has to be read correctly.
// Indexes of version 2 are not read but rebuilt, like those of versions unknown to this lsiofs:
// they lack the time at which a shard's attributes changed, so converting one to the new form would
// make its errors permanent. Those of generation 0, whose directories have no generation in their
// names, are not read either: they may hold files that are not shards. The rebuilt index has the
// same content, which is compared.
const goldenDir = "testdata/golden"

var update = flag.Bool("update", false, "write the golden indexes that are missing")

// goldenDatasets are the datasets from which each version's indexes are made: every part of the
// format is in one of them.
var goldenDatasets = []struct {
	name   string
	format spec.Format
	shards func() map[string][]byte
}{
	{"tar", spec.Format{Name: "auto"}, func() map[string][]byte {
		long := strings.Repeat("a-directory/", 12) // which the equal-key rule makes longer
		return map[string][]byte{
			"a.tar": tarOf(150, "s"), "b.tar": tarOf(3, long), "c.tar.gz": gz(tarOf(9, "s")[:9216], tarOf(9, "s")[9216:]), "no-shard.xyz": []byte("?"),
		}
	}},
	{"jsonl", spec.Format{Name: "auto"}, func() map[string][]byte {
		e, err := zstd.NewWriter(nil)
		if err != nil {
			panic(err)
		}
		defer e.Close()
		lines := linesOf(40, "z")
		frames := slices.Concat(e.EncodeAll(lines[:len(lines)/2], nil), e.EncodeAll(nil, nil), e.EncodeAll(lines[len(lines)/2:], nil))
		damaged := gz(linesOf(10, "one"), linesOf(10, "two"))
		damaged[len(damaged)-6] ^= 1
		return map[string][]byte{
			"a.jsonl": append([]byte("\xef\xbb\xbf"), linesOf(300, "a")...), "b.jsonl": []byte("{}\n\n {\"no\": \"newline\"}"),
			"c.jsonl.zst": frames, "d.jsonl.gz": damaged,
		}
	}},
	{"lc0", spec.Format{Name: "lc0", Lc0Check: true}, func() map[string][]byte {
		return map[string][]byte{"a.tar": gamesOf(gz(gameOf(6, 3)), damagedGame(6, 2), gz(gameOf(6, 4, 1))), "b.gz": gz(gameOf(6, 2))}
	}},
	{"fixed", spec.Format{Name: "fixed", RecordBytes: 96, StrideBytes: 64, HeaderBytes: 40}, func() map[string][]byte {
		return map[string][]byte{"a.bin": linesOf(60, "a"), "b.bin": linesOf(2, "b")}
	}},
}

func goldenName(dataset string) string {
	return fmt.Sprintf("%d.%d-%s", index.Version, index.Generation, dataset)
}

// writeGolden creates the missing indexes of this version.
func writeGolden(t *testing.T) {
	for _, g := range goldenDatasets {
		dir := filepath.Join(goldenDir, goldenName(g.name))
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "shards"), 0o755))
		for name, content := range g.shards() {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "shards", name), content, 0o644))
		}
		c, sealed := openFresh(t, dir, g.format)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index"), sealed, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "said.txt"), []byte(said(t, c, dir)), 0o644))
	}
}

// openFresh indexes the shards of a golden index with the current code.
func openFresh(t *testing.T, dir string, format spec.Format) (c *Catalog, sealed []byte) {
	w := newWorld(t)
	c = w.mustOpen(func(c *Config) {
		c.Dataset, c.Format, c.OnCorrupt = filepath.Join(dir, "shards"), format, spec.CorruptSkip
	})
	return c, w.sealed()
}

// imageOf opens a committed index. The key is taken from the index itself, because the dataset was
// in another directory.
func imageOf(t *testing.T, dir string) (*index.Image, error) {
	data, err := os.ReadFile(filepath.Join(dir, "index"))
	require.NoError(t, err)
	const keyAt = 136 // per package index's documentation
	return index.Open(data, index.Key(data[keyAt:keyAt+32]))
}

// said returns the full content of an index as text, and the bytes of each record that it locates.
func said(t *testing.T, c *Catalog, dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "format %s\nfingerprint %s\n%d records, %d bytes\n", c.image.Format(), c.Fingerprint(), c.Records(), c.StreamBytes())
	record := uint64(0)
	for i := range c.Shards() {
		s := c.Shard(i)
		n := uint64(i)
		fmt.Fprintf(&b, "\n%s: %d records from %d, %d bytes, decoded %d, id %016x, kind %q, members %d, entries %d, parts %v\n", s.Object.Path,
			s.Records, s.First, s.Object.SizeBytes, s.DecodedBytes, s.IDPrefix, c.image.Blob(n).Kind(), s.Members, s.EntryPoints, s.Parts)
		for _, d := range c.image.Blob(n).Losses().First {
			fmt.Fprintf(&b, "left out: %v\n", d)
		}
		decoded := decodedShard(t, c, dir, i)
		for range s.Records {
			var x [1]Extent
			var key [1]uint64
			numbers := []uint64{record}
			c.Extents(numbers, x[:])
			line := fmt.Sprintf("%d: [%d, +%d)", x[0].Ordinal, x[0].OffsetBytes, x[0].SizeBytes)
			if c.KeyHashes(numbers, key[:]) {
				line += fmt.Sprintf(", key %016x, grows %d %d %d", key[0], c.Growth(record, 0), c.Growth(record, 99_999), c.Growth(record, 1<<63))
			}
			if s.Codec != nil {
				e := c.Entry(i, x[0].OffsetBytes)
				line += fmt.Sprintf(", from %d at %d", e.RawBytes, e.DecodedBytes)
			}
			sum := sha256.Sum256(decoded[x[0].OffsetBytes:][:x[0].SizeBytes])
			fmt.Fprintf(&b, "%s: %s\n", line, hex.EncodeToString(sum[:8]))
			record++
		}
	}
	return b.String()
}

// decodedShard returns the bytes that a shard's extents refer to: those before damage, with a
// newline appended that may be missing; of parts, those that are kept.
func decodedShard(t *testing.T, c *Catalog, dir string, shard int) []byte {
	s := c.Shard(shard)
	raw, err := os.Open(filepath.Join(dir, "shards", s.Object.Path))
	require.NoError(t, err)
	defer raw.Close()
	if s.Codec == nil {
		b, err := io.ReadAll(raw)
		require.NoError(t, err)
		return append(b, '\n')
	}
	var all []byte
	for int64(len(all)) < s.DecodedBytes {
		end := s.DecodedBytes
		entry := c.Entry(shard, int64(len(all)))
		if s.Parts {
			end = c.Part(shard, int64(len(all))).EndBytes
		}
		d, err := format.NewDecoded(s.Codec, raw, s.Object.SizeBytes, entry)
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, d, int64(len(all))-entry.DecodedBytes)
		require.NoError(t, err)
		part := make([]byte, end-int64(len(all)))
		_, err = io.ReadFull(d, part)
		require.NoError(t, err)
		d.Close()
		all = append(all, part...)
	}
	return append(all, '\n')
}

// TestGoldenIndexesOfAllVersionsAreRead opens each index, reads every record through it, and
// compares the result with that of its creation. Then the shards are indexed anew, which must give
// the same dataset: fingerprints are in checkpoints.
func TestGoldenIndexesOfAllVersionsAreRead(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	for _, g := range goldenDatasets {
		require.DirExists(t, filepath.Join(goldenDir, goldenName(g.name)), "of this version, see above")
	}
	entries, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			dir := filepath.Join(goldenDir, e.Name())
			want, err := os.ReadFile(filepath.Join(dir, "said.txt"))
			require.NoError(t, err)
			i, err := imageOf(t, dir)
			switch {
			case strings.HasPrefix(e.Name(), "2-"):
				require.ErrorContains(t, err, "is not an index of this dataset and version: it is of version 2")
			case strings.HasPrefix(e.Name(), "3-"):
				require.ErrorContains(t, err, "is not an index of this dataset and version: its shards were chosen by rules of version 0")
			default:
				require.NoError(t, err)
				require.Equal(t, string(want), said(t, &Catalog{image: i, coarse: newCoarse(i)}, dir))
			}
			_, name, _ := strings.Cut(e.Name(), "-")
			for _, g := range goldenDatasets {
				if g.name == name {
					fresh, _ := openFresh(t, dir, g.format)
					require.Equal(t, string(want), said(t, fresh, dir))
					return
				}
			}
			t.Fatal("nothing says what it is of")
		})
	}
}

// TestIndexOfOtherVersionIsReportedAndRebuilt uses an index made by a newer lsiofs, under
// the name that this one uses.
func TestIndexOfOtherVersionIsReportedAndRebuilt(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	want := w.mustOpen().Fingerprint()
	path := w.indexFiles("*.index")[0]
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	stored[8]++ // the version
	require.NoError(t, os.WriteFile(path, stored, 0o600))
	require.NotZero(t, w.readsOf(func() { require.Equal(t, want, w.mustOpen().Fingerprint()) }))
	require.Contains(t, w.log.String(), fmt.Sprintf("it is of version %d, and this lsiofs reads version %d", index.Version+1, index.Version))
	require.Contains(t, w.log.String(), "built again")
	require.Zero(t, w.readsOf(func() { w.mustOpen() }), "the new one is used")
}

// An index stored by an lsiofs of an earlier generation may be of other shards. It is rebuilt, with
// the same fingerprint if its shards were the right ones.
func TestIndexOfEarlierVersionIsRebuilt(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 3 {
		w.write(fmt.Sprintf("%d.jsonl", i), linesOf(20, fmt.Sprint(i)))
	}
	want := w.mustOpen().Fingerprint()
	path := w.indexFiles("*.index")[0]
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	earlier := indextest.Repair(stored, index.Version, index.Generation-1, index.Key(stored[136:168]))
	require.NoError(t, os.WriteFile(path, earlier, 0o600))

	s := w.mustOpenLiveIndex()
	require.GreaterOrEqual(t, w.readsOf(func() { w.look(s) }), int64(3), "a live index does not believe it")
	require.NoError(t, s.Close())
	journal := w.indexFiles("*.journal")[0]
	entries, err := os.ReadFile(journal)
	require.NoError(t, err)
	entries[12] = index.Generation - 1
	require.NoError(t, os.WriteFile(journal, entries, 0o600))
	s = w.mustOpenLiveIndex()
	require.NoFileExists(t, journal)
	require.GreaterOrEqual(t, w.readsOf(func() { w.look(s) }), int64(3), "nor a journal")
	require.NoError(t, s.Close())

	for _, p := range w.indexFiles("*.journal") {
		require.NoError(t, os.Remove(p))
	}
	require.NoError(t, os.WriteFile(path, earlier, 0o600))
	require.GreaterOrEqual(t, w.readsOf(func() { require.Equal(t, want, w.mustOpen().Fingerprint()) }), int64(3))
	require.Contains(t, w.log.String(), "its shards were chosen by rules of version 0, and this lsiofs has version 1")
	require.Zero(t, w.readsOf(func() { w.mustOpen() }), "the new one is used")
}
