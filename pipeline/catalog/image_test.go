package catalog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

var smallKey = [32]byte{9, 8, 7}

// smallSealing is an index with every part in it.
func smallSealing(t require.TestingT) *sealing {
	growth := make([]int64, unpack.MaxDigits)
	growth[3] = 512
	one := plainShard{
		decoded: 5000, kind: "one", members: []unpack.Member{{}, {DecodedBytes: 120, RawBytes: 60}},
		damage: &unpack.CorruptError{Record: 3, OffsetBytes: 900, RawOffset: 60, Reason: "cut short"},
		extents: []unpack.Extent{{SizeBytes: 100, KeyHash: 1}, {OffsetBytes: 120, SizeBytes: 30, KeyHash: 2, Growth: growth},
			{OffsetBytes: 150, SizeBytes: 750, KeyHash: 3}},
	}
	two := plainShard{decoded: 70, extents: []unpack.Extent{{OffsetBytes: 3, SizeBytes: 67, KeyHash: 4}}}
	object := func(path string) storage.Object {
		return storage.Object{Path: path, SizeBytes: 70, Version: storage.Version{ModTimeNanos: 1, Inode: 2}}
	}
	s := &sealing{key: smallKey, formatLine: "tar", keyed: true, judged: []judged{judgedOf(object("README"))},
		shards: []packed{{object("a.tar.gz"), 1, one.pack(t, true)}, {object("b.tar"), 0, two.pack(t, true)}}}
	s.fingerprint = fingerprintOf(spec.Format{Name: "tar"}, s.shards)
	return s
}

func smallImage(t require.TestingT, dir string) []byte {
	m := writeSealed(t, dir, smallSealing(t))
	defer m.Close()
	return bytes.Clone(m.data)
}

func TestEveryFlippedByteOfAnIndexIsDetected(t *testing.T) {
	data := smallImage(t, t.TempDir())
	_, err := openImage(data, smallKey)
	require.NoError(t, err)
	for i := range data {
		for _, flip := range []byte{1, 0x80, 0xff} {
			data[i] ^= flip
			_, err := openImage(data, smallKey)
			require.Error(t, err, "byte %d", i)
			data[i] ^= flip
		}
	}
}

func TestEveryTruncationOfAnIndexIsDetected(t *testing.T) {
	data := smallImage(t, t.TempDir())
	for n := range data {
		_, err := openImage(data[:n], smallKey)
		require.Error(t, err, "%d bytes", n)
	}
	_, err := openImage(append(data, 0), smallKey)
	require.Error(t, err)
}

func TestAnIndexOfAnotherDatasetIsForeign(t *testing.T) {
	_, err := openImage(smallImage(t, t.TempDir()), [32]byte{1})
	require.ErrorIs(t, err, errForeign)
}

func TestALargeIndexIsCheckedSegmentBySegment(t *testing.T) {
	s := smallSealing(t)
	big := plainShard{decoded: 1 << 40}
	for i := range 1_200_000 { // 8 bytes of key each: three segments
		big.extents = append(big.extents, unpack.Extent{OffsetBytes: int64(i) * 10, SizeBytes: 10, KeyHash: uint64(i) * 0x9E3779B97F4A7C15})
	}
	s.shards = append(s.shards, packed{object: storage.Object{Path: "c.tar"}, blob: big.pack(t, true)})
	m := writeSealed(t, t.TempDir(), s)
	defer m.Close()
	data := bytes.Clone(m.data)
	i, err := openImage(data, smallKey)
	require.NoError(t, err)
	require.EqualValues(t, 1_200_004, i.h.records)
	for _, at := range []int{segmentBytes - 1, segmentBytes + imageHeaderBytes, 2*segmentBytes + 77, len(data) - 1} {
		data[at] ^= 1
		_, err := openImage(data, smallKey)
		require.ErrorIs(t, err, errDamaged)
		data[at] ^= 1
	}
}

func TestEveryFlippedByteOfAJournalCostsEntriesAndNoMore(t *testing.T) {
	data, head, want := smallJournal(t)
	list, err := readJournal(data, head)
	require.NoError(t, err)
	require.Equal(t, want, list)
	for i := range data {
		data[i] ^= 0x41
		list, err := readJournal(data, head)
		if i < len(head) {
			require.ErrorIs(t, err, errJournal)
		} else {
			require.NoError(t, err)
			require.Less(t, len(list), len(want), "byte %d", i)
			require.Equal(t, want[:len(list)], append([]packed{}, list...))
		}
		data[i] ^= 0x41
	}
	for n := len(head); n < len(data); n++ {
		list, err := readJournal(data[:n], head)
		require.NoError(t, err)
		require.Equal(t, want[:len(list)], append([]packed{}, list...))
	}
}

func smallJournal(t require.TestingT) (data, head []byte, entries []packed) {
	j := newJournal(&store{key: smallKey}, "tar", nil)
	data = bytes.Clone(j.head)
	entries = smallSealing(t).shards
	for _, p := range entries {
		data = append(append(data, marshalEntryHead(p)...), p.blob...)
	}
	return data, j.head, entries
}

// repaired is data with checksums that hold, so that what they protect is
// reached.
func repaired(data []byte) []byte {
	data = bytes.Clone(data)
	if len(data) < imageHeaderBytes {
		return data
	}
	h := imageHeader{}
	fields := h.fields()
	for i, f := range fields {
		*f = blob(data).word(16 + 8*uint64(i))
	}
	h.key = smallKey
	h.fileBytes = uint64(len(data))
	if h.sumsAt >= imageHeaderBytes && h.sumsAt <= uint64(len(data)) {
		body := data[imageHeaderBytes:h.sumsAt]
		if len(body) <= segmentBytes && len(data)-int(h.sumsAt) == 8 {
			w := blob(data)[h.sumsAt:]
			copy(w, appendWord(nil, xxh3.Hash(body)))
			h.sumsHash = xxh3.Hash(w)
		}
	}
	copy(data, h.marshal())
	return data
}

func appendWord(b []byte, v uint64) []byte {
	for i := range 8 {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// FuzzOpenImage shows that no file, not even one with right checksums, makes
// the opener or an accessor panic: numbers are put into a whole index, and its
// checksums made right again.
func FuzzOpenImage(f *testing.F) {
	data := smallImage(f, f.TempDir())
	f.Add(uint16(24), uint64(0), uint16(0), uint64(0), []byte("lsiofsIX"))
	f.Add(uint16(256), uint64(1)<<63, uint16(300), uint64(1)<<60, data[:300])
	f.Add(uint16(592), uint64(200), uint16(0), uint64(0), data)
	f.Fuzz(func(t *testing.T, at1 uint16, v1 uint64, at2 uint16, v2 uint64, whole []byte) {
		changed := bytes.Clone(data)
		if at := int(at1) % (len(data) - 8); v1 != 0 {
			copy(changed[at:], appendWord(nil, v1))
		}
		if at := int(at2) % (len(data) - 8); v2 != 0 {
			copy(changed[at:], appendWord(nil, v2))
		}
		for _, d := range [][]byte{whole, repaired(whole), repaired(changed)} {
			if i, err := openImage(d, smallKey); err == nil {
				useImage(i)
			}
		}
	})
}

func TestNoNumberInAnIndexMakesAnAccessorLeaveIt(t *testing.T) {
	data := smallImage(t, t.TempDir())
	opened := 0
	for at := 0; at+8 <= len(data); at += 4 {
		for _, v := range []uint64{0, 1, 127, 129, 1 << 31, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			changed := bytes.Clone(data)
			copy(changed[at:], appendWord(nil, v))
			if i, err := openImage(repaired(changed), smallKey); err == nil {
				opened++
				useImage(i)
			}
		}
	}
	require.Greater(t, opened, 100, "checksums were made right")
}

// useImage calls every accessor.
func useImage(i *image) {
	c := &Catalog{image: i, coarse: newCoarse(i), table: &table{}}
	n := min(c.Records(), 1000)
	numbers, extents := make([]uint64, n), make([]Extent, n)
	for k := range numbers {
		numbers[k] = uint64(k)
		_ = c.Growth(uint64(k), 1000)
	}
	c.Extents(numbers, extents)
	c.Sizes(numbers, make([]int64, n))
	c.KeyHashes(numbers, make([]uint64, n))
	c.ChunkStarts(100, 10)
	_ = unmarshalJudged(i.judged())
	_ = i.formatLine()
	_, _ = i.find("a.tar.gz")
	for s := range c.Shards() {
		_ = i.blob(uint64(s)).damage()
		_ = i.blob(uint64(s)).kind()
		if sh := c.Shard(s); i.codec(uint64(s)) != 0 && i.blob(uint64(s)).header().flags&flagCompressed != 0 {
			_ = c.Entry(s, sh.DecodedBytes/2)
		}
	}
}

// FuzzReadJournal shows that no file makes the reader of journals panic, and
// that every blob that it gives can be used.
func FuzzReadJournal(f *testing.F) {
	data, head, _ := smallJournal(f)
	f.Add(data)
	f.Add(data[:len(data)-9])
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readJournal(data, head)
		if err != nil {
			return
		}
		for _, p := range list {
			require.NoError(t, p.blob.check())
		}
	})
}

func TestHistoryKeepsTheNewestFour(t *testing.T) {
	w := newWorld(t)
	var seen []string
	for i := range 6 {
		w.write("a.jsonl", linesOf(i+1, "a"))
		seen = append(seen, w.mustOpen().Fingerprint())
	}
	c := w.mustOpen()
	for i, fingerprint := range seen {
		require.Equal(t, i < 2, c.Explain(fingerprint) == "", "fingerprint %d", i)
	}
	// What does not hash to its name is not believed.
	path := w.indexFiles("*." + seen[3] + ".gz")[0]
	require.NoError(t, os.WriteFile(path, gz([]byte("lsiofs/1 dataset tar\n")), 0o600))
	require.Empty(t, c.Explain(seen[3]))
	require.NoError(t, os.WriteFile(filepath.Clean(path), []byte("x"), 0o600))
	require.Empty(t, c.Explain(seen[3]))
}
