package index

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index/indextest"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

var smallKey = Key{9, 8, 7}

// smallSealing returns an index with every part in it.
func smallSealing(t require.TestingT) *sealing {
	growth := make([]int64, format.MaxDigits)
	growth[3] = 512
	one := plainShard{
		decoded: 5000, kind: "one", members: []format.Member{{}, {DecodedBytes: 120, RawBytes: 60}},
		points: []format.Point{{DecodedBytes: 50, RawBits: 81, CRC32: 9, State: []byte("state")}, {DecodedBytes: 160, RawBits: 600, State: []byte("and another")}},
		damage: &format.CorruptError{Record: 3, OffsetBytes: 900, RawOffset: 60, Reason: "cut short"},
		extents: []format.Extent{{SizeBytes: 100, KeyHash: 1}, {OffsetBytes: 120, SizeBytes: 30, KeyHash: 2, Growth: growth},
			{OffsetBytes: 150, SizeBytes: 750, KeyHash: 3}},
	}
	two := plainShard{decoded: 70, extents: []format.Extent{{OffsetBytes: 3, SizeBytes: 67, KeyHash: 4}}}
	object := func(path string) storage.Object {
		return storage.Object{Path: path, SizeBytes: 70, Version: storage.Version{ModTimeNanos: 1, Inode: 2}}
	}
	return sealingOf(t, Content{Format: "tar", Keyed: true, Judged: []storage.Object{object("README")},
		Shards: []Shard{{object("a.tar.gz"), 1, one.pack(t, true)}, {object("b.tar"), 0, two.pack(t, true)}}})
}

func smallImage(t require.TestingT, dir string) []byte {
	m := writeSealed(t, dir, smallSealing(t))
	defer m.Close()
	return bytes.Clone(m.data)
}

func TestEveryFlippedByteOfAnIndexIsDetected(t *testing.T) {
	data := smallImage(t, t.TempDir())
	_, err := Open(data, smallKey)
	require.NoError(t, err)
	for i := range data {
		for _, flip := range []byte{1, 0x80, 0xff} {
			data[i] ^= flip
			_, err := Open(data, smallKey)
			require.Error(t, err, "byte %d", i)
			data[i] ^= flip
		}
	}
}

// A growth index just beyond the vectors is still inside the shard's part, so no accessor would
// fail.
func TestGrowthIndexBeyondVectorsIsRefused(t *testing.T) {
	b := bytes.Clone(smallSealing(t).Shards[0].Blob)
	h := Blob(b).Header()
	require.EqualValues(t, 1, h.growthVectors)
	require.EqualValues(t, 1, h.growthRecords)
	require.NoError(t, Blob(b).check())
	b[h.layout().growthIndexes] = 1
	require.ErrorIs(t, Blob(b).check(), errBlob)
}

func TestEveryIndexTruncationIsDetected(t *testing.T) {
	data := smallImage(t, t.TempDir())
	for n := range data {
		_, err := Open(data[:n], smallKey)
		require.Error(t, err, "%d bytes", n)
	}
	_, err := Open(append(data, 0), smallKey)
	require.Error(t, err)
}

func TestIndexOfOtherDatasetIsForeign(t *testing.T) {
	_, err := Open(smallImage(t, t.TempDir()), Key{1})
	require.ErrorIs(t, err, errForeign)
}

func TestLargeIndexIsCheckedBySegment(t *testing.T) {
	s := smallSealing(t)
	big := plainShard{decoded: 1 << 40}
	for i := range 1_200_000 { // 8 bytes of key each: three segments
		big.extents = append(big.extents, format.Extent{OffsetBytes: int64(i) * 10, SizeBytes: 10, KeyHash: uint64(i) * 0x9E3779B97F4A7C15})
	}
	s.Shards = append(s.Shards, Shard{Object: storage.Object{Path: "c.tar"}, Blob: big.pack(t, true)})
	m := writeSealed(t, t.TempDir(), s)
	defer m.Close()
	data := bytes.Clone(m.data)
	i, err := Open(data, smallKey)
	require.NoError(t, err)
	require.EqualValues(t, 1_200_004, i.Records())
	for _, at := range []int{segmentBytes - 1, segmentBytes + imageHeaderBytes, 2*segmentBytes + 77, len(data) - 1} {
		data[at] ^= 1
		_, err := Open(data, smallKey)
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
			require.Equal(t, want[:len(list)], append([]Shard{}, list...))
		}
		data[i] ^= 0x41
	}
	for n := len(head); n < len(data); n++ {
		list, err := readJournal(data[:n], head)
		require.NoError(t, err)
		require.Equal(t, want[:len(list)], append([]Shard{}, list...))
	}
}

func smallJournal(t require.TestingT) (data, head []byte, entries []Shard) {
	j := newJournal(&Store{key: smallKey}, "tar")
	data = bytes.Clone(j.head)
	entries = smallSealing(t).Shards
	for _, p := range entries {
		data = append(append(data, marshalEntryHead(p)...), p.Blob...)
	}
	return data, j.head, entries
}

func appendWord(b []byte, v uint64) []byte {
	for i := range 8 {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// FuzzOpenImage shows that no file, not even one with valid checksums, makes the opener or an
// accessor panic: numbers are written into a whole index, and its checksums are corrected.
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
		for _, d := range [][]byte{whole, indextest.Repair(whole, Version, Generation, smallKey), indextest.Repair(changed, Version, Generation, smallKey)} {
			if i, err := Open(d, smallKey); err == nil {
				useImage(i)
			}
		}
	})
}

func TestNoNumberInIndexMakesAccessorReadOutOfBounds(t *testing.T) {
	data := smallImage(t, t.TempDir())
	opened := 0
	for at := 0; at+8 <= len(data); at += 4 {
		for _, v := range []uint64{0, 1, 16, 127, 129, 1 << 31, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			changed := bytes.Clone(data)
			copy(changed[at:], appendWord(nil, v))
			if i, err := Open(indextest.Repair(changed, Version, Generation, smallKey), smallKey); err == nil {
				opened++
				useImage(i)
			}
		}
	}
	require.Greater(t, opened, 100, "checksums were made right")
}

// useImage calls every accessor.
func useImage(i *Image) {
	_ = i.Judged()
	_ = i.Format()
	_, _ = i.Find("a.tar.gz")
	for s := range i.Shards() {
		_, _, _, _ = i.Object(s), i.Codec(s), i.IDPrefix(s), i.Start(s+1)
		useBlob(i.Blob(s), i.Keyed())
	}
}

// useBlob calls every accessor of a shard's blob, with the first records if there are many.
func useBlob(b Blob, keyed bool) {
	h := b.Header()
	_, _ = b.Losses(), b.Kind()
	_, _ = b.Part(h.DecodedBytes / 2)
	_ = b.Entry(h.DecodedBytes / 2)
	_, _ = b.NextPoint(h.DecodedBytes / 3)
	for n := range min(int(h.Points), 1000) {
		_ = b.Point(n + 1)
	}
	for first := uint64(0); first < min(h.Records, 1000); first += BlockRecords {
		k, _ := b.BlockOf(first, h.Records)
		k.Sizes(new([BlockRecords]int64))
		_ = k.MayExceed(100)
		for j := range k.Records {
			_, _ = k.Size(j), k.Offset(j)
			if j+1 < k.Records {
				_ = k.Gap(j)
			}
			_, _ = b.Size(first+j), b.Growth(first+j, 4)
			if keyed {
				_ = b.KeyHash(first+j, h.Records)
			}
			if h.Compressed() {
				_ = b.Entries().Has(first + j)
			}
		}
	}
}

// FuzzReadJournal shows that no file makes the reader of journals panic, and that every blob it
// returns can be used.
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
			require.NoError(t, p.Blob.check())
		}
	})
}
