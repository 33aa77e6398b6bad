package catalog

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// gameOf returns n frames of a version of lc0; all are valid except for those in bad.
func gameOf(version uint32, n int, bad ...int) []byte {
	size := map[uint32]int{5: 8308, 6: 8356, 7: 8396}[version]
	g := make([]byte, n*size)
	for i := range n {
		binary.LittleEndian.PutUint32(g[i*size:], version)
	}
	for _, i := range bad {
		g[i*size+10], g[i*size+11] = 0xc0, 0x7f // a NaN in the policy
	}
	return g
}

// damagedGame returns a game with a wrong checksum.
func damagedGame(version uint32, n int) []byte {
	g := gz(gameOf(version, n))
	g[len(g)-5] ^= 1
	return g
}

// gamesOf returns a tar of files named 0.gz and so on.
func gamesOf(games ...[]byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, g := range games {
		err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d.gz", i), Mode: 0o644, Size: int64(len(g)), Format: tar.FormatUSTAR})
		if err == nil {
			_, err = w.Write(g)
		}
		if err != nil {
			panic(err)
		}
	}
	_ = w.Close()
	return b.Bytes()
}

func checking(c *Config) { c.Format.Lc0Check = true }

func TestIndexRecordsIncludedParts(t *testing.T) {
	w := newWorld(t)
	raw := gamesOf(gz(gameOf(6, 3)), damagedGame(6, 2), gz(gameOf(6, 4)), gz(nil), gz(gameOf(6, 1)))
	w.write("a.tar", raw)
	w.write("b.gz", gz(gameOf(6, 2)))
	_, err := w.open()
	require.ErrorContains(t, err, "a.tar: offset 25068 (compressed member at byte")
	require.ErrorContains(t, err, "1.gz: the gzip member's checksum")

	c := w.mustOpen(skipping)
	require.Equal(t, "lc0", c.Format().Name)
	require.Equal(t, "version 6", c.Kind())
	require.Equal(t, ".bin", c.StreamExtension())
	require.EqualValues(t, 10, c.Records())
	s := c.Shard(0)
	require.True(t, s.Parts)
	require.EqualValues(t, 3, s.EntryPoints)
	require.EqualValues(t, 8*8356, s.DecodedBytes)
	require.Equal(t, []uint64{0, 3, 7, 8, 10}, c.ChunkStarts(1, 1), "a game is not cut")
	third, fifth := bytes.Index(raw, []byte("2.gz\x00")), bytes.Index(raw, []byte("4.gz\x00"))
	require.Equal(t, Part{DecodedBytes: 3 * 8356, EndBytes: 7 * 8356, RawBytes: int64(third), EndRawBytes: int64(fifth)}, c.Part(0, 4*8356))
	require.Equal(t, Part{DecodedBytes: 7 * 8356, EndBytes: 8 * 8356, RawBytes: int64(fifth)}, c.Part(0, 7*8356))
	require.Equal(t, format.Entry{DecodedBytes: 3 * 8356, RawBytes: int64(third)}, c.Entry(0, 6*8356))

	require.Len(t, c.Damaged(), 1)
	d := c.Damaged()[0]
	require.Equal(t, "a.tar", d.Path)
	require.EqualValues(t, 2, d.Count())
	require.Len(t, d.Errors, 2)
	require.ErrorContains(t, d.Errors[1], "3.gz: the game is empty")
	require.Equal(t, []format.Reason{{Text: "the gzip member's checksum or size does not match its bytes", Count: 1}, {Text: "the game is empty", Count: 1}}, c.DamageReasons())
	require.Zero(t, w.readsOf(func() { require.Equal(t, c.Damaged(), w.mustOpen(skipping).Damaged()) }), "it is all in the stored index")
}

func TestGameWithoutFirstFrameIsEnteredAtItsStart(t *testing.T) {
	w := newWorld(t)
	raw := gamesOf(gz(gameOf(6, 3, 1)), gz(gameOf(6, 2, 0, 1)), gz(gameOf(6, 4, 0)))
	w.write("a.tar", raw)
	plain, checked := w.mustOpen(), w.mustOpen(skipping, checking)
	require.NotEqual(t, plain.Fingerprint(), checked.Fingerprint())
	require.EqualValues(t, 9, plain.Records(), "nothing is looked at without the check")
	require.EqualValues(t, 5, checked.Records())
	require.EqualValues(t, 2, checked.Shard(0).EntryPoints)
	require.EqualValues(t, 9*8356, checked.Shard(0).DecodedBytes)
	third := int64(bytes.Index(raw, []byte("2.gz\x00")))
	require.Equal(t, format.Entry{DecodedBytes: 5 * 8356, RawBytes: third}, checked.Entry(0, 6*8356))
	require.Equal(t, []format.Reason{{Text: "the policy has a value that is not finite", Count: 4}}, checked.DamageReasons())
	require.EqualError(t, checked.Damaged()[0].Errors[0], "offset 8356 (compressed member at byte 0 of the file): 0.gz, frame 1 of the game: the policy has a value that is not finite")
	_, err := w.open(checking)
	require.ErrorContains(t, err, "frame 1 of the game: the policy")
}

func TestGamesOfTwoVersionsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.write("a.gz", gz(gameOf(5, 2)))
	w.write("b.gz", gz(gameOf(6, 2)))
	for _, change := range []func(*Config){func(*Config) {}, skipping} {
		_, err := w.open(change)
		require.ErrorContains(t, err, "a.gz has version 5, b.gz has version 6")
	}
}

// Streams of tensors accept games of all versions. The index is the same as for frames, of which
// one mount accepts only one version, whichever of the two built the index.
func TestTensorsAreOfGamesOfAnyVersion(t *testing.T) {
	w := newWorld(t)
	w.write("a.gz", gz(gameOf(5, 2)))
	w.write("b.gz", gz(gameOf(6, 3)))
	w.write("c.gz", gz(gameOf(5, 1)))
	tensors := func(c *Config) { c.Format.As = spec.AsTensorsU1 }
	c := w.mustOpen(tensors)
	require.Equal(t, "versions 5, 6", c.Kind())
	require.Equal(t, ".npy", c.StreamExtension())
	require.EqualValues(t, 14672, c.RowBytes())
	require.EqualValues(t, 6*14672, c.StreamBytes())
	sizes := make([]int64, 3)
	c.Sizes([]uint64{1, 2, 5}, sizes)
	require.Equal(t, []int64{8308, 8356, 8308}, sizes, "of records, not of rows")
	fingerprint := c.Fingerprint()
	require.Zero(t, w.readsOf(func() {
		require.Equal(t, "versions 5, 6", w.mustOpen(tensors).Kind())
		require.EqualValues(t, 6*36176, w.mustOpen(func(c *Config) { c.Format.As = spec.AsTensorsF4 }).StreamBytes())
		_, err := w.open()
		require.ErrorContains(t, err, "a.gz has version 5, b.gz has version 6")
	}), "the stored index serves all")

	w.write("d.tar", gamesOf(gz(gameOf(7, 1)), gz(gameOf(6, 1))))
	c = w.mustOpen(tensors)
	require.Equal(t, "versions 5, 6, 7", c.Kind())
	require.NotEqual(t, fingerprint, c.Fingerprint())
	for _, name := range []string{"a.gz", "b.gz", "c.gz"} {
		require.NoError(t, os.Remove(filepath.Join(w.data, name)))
	}
	for range 2 {
		require.Equal(t, "versions 6, 7", w.mustOpen(tensors).Kind())
		_, err := w.open()
		require.ErrorContains(t, err, "d.tar has versions 6, 7")
	}
	_, err := w.open(func(c *Config) { c.Rebuild = true })
	require.ErrorContains(t, err, "mount with --as tensors")
	require.NoError(t, os.Remove(filepath.Join(w.data, "d.tar")))
	w.write("a.gz", gz(gameOf(5, 2)))
	require.Equal(t, w.mustOpen().Fingerprint(), w.mustOpen(tensors).Fingerprint(), "what is read is the same")
}

func TestTensorsAreOfGamesOnly(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(9, "a"))
	_, err := w.open(func(c *Config) { c.Format.As = spec.AsTensorsF2 })
	require.ErrorContains(t, err, "holds shards of format jsonl: --as tensors:f2 is for format lc0 only")
}

func TestWhichTarsContainGames(t *testing.T) {
	w := newWorld(t)
	w.write("a.tar", gamesOf(gz(gameOf(6, 2))))
	w.write("b.gz", gz(gameOf(6, 3), gameOf(6, 1)))
	w.write("notes.md", []byte("text"))
	c := w.mustOpen()
	require.Equal(t, "lc0", c.Format().Name)
	require.Equal(t, 2, c.Shards())
	require.Equal(t, 1, c.PassedOver())
	require.Zero(t, w.readsOf(func() { w.mustOpen() }), "what was looked at once is remembered")

	w.write("c.tar", tarOf(2, "s"))
	_, err := w.open()
	require.ErrorContains(t, err, "2 formats")
	_, err = w.open(checking, dataset(w.data+"/c.tar"))
	require.ErrorContains(t, err, "--lc0-check is for format lc0 only")
	asked := w.mustOpen(dataset(w.data+"/{a.tar,b.gz,notes.md}"), func(c *Config) { c.Format.Name = "lc0" })
	require.Equal(t, 2, asked.Shards())
}

// parts draws a shard that is made of parts.
func parts(t *rapid.T) plainShard {
	s := plainShard{members: []format.Member{}, parts: true}
	size := rapid.SampledFrom([]int64{10, 100, 8356}).Draw(t, "size")
	at := int64(0)
	for i := range rapid.IntRange(1, 12).Draw(t, "games") {
		s.members = append(s.members, format.Member{DecodedBytes: at, RawBytes: int64(1000 * i)})
		for range rapid.IntRange(1, 200).Draw(t, "frames") {
			if rapid.IntRange(0, 20).Draw(t, "kept") > 0 {
				s.extents = append(s.extents, format.Extent{OffsetBytes: at, SizeBytes: size})
			}
			at += size
		}
	}
	s.decoded = at
	for i := range rapid.IntRange(0, 12).Draw(t, "damages") {
		s.losses.Add(&format.CorruptError{Record: -1, OffsetBytes: int64(i), RawOffset: 7, Part: fmt.Sprint(i, ".gz"), Reason: []string{"one", "two"}[i%2]})
	}
	return s
}

func TestPiecesAreWholePartsWithEntryPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parts(t)
		if len(s.extents) == 0 {
			return
		}
		c := sealShards(t, []plainShard{s}, false)
		defer c.Close()
		require.Equal(t, s.losses, c.image.Blob(0).Losses())
		memberOf := func(o int) (m int) {
			for m+1 < len(s.members) && s.members[m+1].DecodedBytes <= s.extents[o].OffsetBytes {
				m++
			}
			return m
		}
		entries := uint64(0)
		isEntry := make([]bool, len(s.extents))
		for o := range s.extents {
			m := memberOf(o)
			if o == 0 || memberOf(o-1) != m {
				isEntry[o] = true
				entries++
			}
			require.Equal(t, format.Entry{DecodedBytes: s.members[m].DecodedBytes, RawBytes: s.members[m].RawBytes}, c.Entry(0, s.extents[o].OffsetBytes))
			p := c.Part(0, s.extents[o].OffsetBytes)
			require.Equal(t, s.members[m].DecodedBytes, p.DecodedBytes)
			require.Equal(t, s.members[m].RawBytes, p.RawBytes)
			if m+1 < len(s.members) {
				require.Equal(t, Part{p.DecodedBytes, s.members[m+1].DecodedBytes, p.RawBytes, s.members[m+1].RawBytes}, p)
			} else {
				require.Equal(t, Part{p.DecodedBytes, s.decoded, p.RawBytes, 0}, p)
			}
		}
		require.Equal(t, entries, c.Shard(0).EntryPoints)

		chunkBytes := rapid.Uint64Range(1, 1<<20).Draw(t, "bytes")
		chunkRecords := rapid.Uint64Range(1, 300).Draw(t, "records")
		whole := rapid.Uint64Range(0, 2<<20).Draw(t, "whole")
		chunks := c.ChunkStarts(chunkBytes, chunkRecords)
		var want []uint64
		for i, from := range chunks[:len(chunks)-1] {
			want = append(want, from)
			var all, bytes, records uint64
			var cuts []uint64
			for r := from; r < chunks[i+1]; r++ {
				if bytes >= chunkBytes || records >= chunkRecords {
					cuts = append(cuts, r)
					bytes, records = 0, 0
				}
				bytes, records, all = bytes+uint64(s.extents[r].SizeBytes), records+1, all+uint64(s.extents[r].SizeBytes)
			}
			if all > whole {
				want = append(want, cuts...)
			}
		}
		require.Equal(t, append(want, c.Records()), c.PieceStarts(chunkBytes, chunkRecords, whole))
	})
}
