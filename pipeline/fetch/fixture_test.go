package fetch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"testing"

	kgzip "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	plz4 "github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/gzip"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lz4"
	zst "github.com/lsiofs/lsiofs/pipeline/unpack/zstd"
)

// plainIndex is a catalog that keeps everything in slices: what fetch sees of
// a dataset whose files were written by a fixture.
type plainIndex struct {
	format  unpack.Format
	shards  []catalog.Shard
	entries [][]unpack.Entry // of each shard, ascending
	extents []catalog.Extent
}

func (x *plainIndex) Records() uint64           { return uint64(len(x.extents)) }
func (x *plainIndex) Shards() int               { return len(x.shards) }
func (x *plainIndex) Shard(i int) catalog.Shard { return x.shards[i] }
func (x *plainIndex) Unpacker() unpack.Format   { return x.format }

func (x *plainIndex) Extents(records []uint64, dst []catalog.Extent) {
	for i, r := range records {
		dst[i] = x.extents[r]
	}
}

func (x *plainIndex) PieceStarts(chunkBytes, chunkRecords, _ uint64) []uint64 {
	var starts []uint64
	var n, size uint64
	for r, e := range x.extents {
		if r == 0 || e.Shard != x.extents[r-1].Shard || size >= chunkBytes || n >= chunkRecords {
			starts = append(starts, uint64(r))
			n, size = 0, 0
		}
		n++
		size += uint64(e.SizeBytes)
	}
	return append(starts, x.Records())
}

func (x *plainIndex) Entry(shard int, decodedBytes int64) unpack.Entry {
	e := x.entries[shard]
	return e[sort.Search(len(e), func(i int) bool { return e[i].DecodedBytes > decodedBytes })-1]
}

func (x *plainIndex) Part(int, int64) catalog.Part { panic("no shard is made of parts") }

// crcFormat is a format whose records end in their CRC.
type crcFormat struct{ unpack.Format }

func (crcFormat) Verify(record []byte) error {
	if n := len(record) - 4; crc32.ChecksumIEEE(record[:n]) != binary.LittleEndian.Uint32(record[n:]) {
		return fmt.Errorf("checksum mismatch")
	}
	return nil
}

// dataset is shards on disk, what they hold, and their index.
type dataset struct {
	dir     string
	index   *plainIndex
	records [][]byte
	read    spec.Read
}

// shape says how to make a dataset.
type shape struct {
	codec       string // "", "gz", "zst" or "lz4"
	shards      int
	records     int // of a shard
	maxBytes    int // of a record
	sameSize    bool
	member      int // records in a member, 0 for all
	memberBytes int // if above 0, decoded bytes in a member instead, wherever records begin
	gapBytes    int // greatest number of bytes between records
	noNewline   bool
	checksummed bool
	read        spec.Read // "" for scan
}

func makeDataset(t testing.TB, s shape) *dataset {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	d := &dataset{dir: t.TempDir(), index: &plainIndex{}, read: s.read}
	if s.checksummed {
		d.index.format = crcFormat{}
	}
	for i := range s.shards {
		d.addShard(t, s, i, rng)
	}
	return d
}

func (d *dataset) addShard(t testing.TB, s shape, i int, rng *rand.Rand) {
	x := d.index
	shard := catalog.Shard{First: x.Records(), Records: uint64(s.records)}
	var decoded, raw bytes.Buffer
	var entries []unpack.Entry
	var closeMember func()
	var w interface{ Write([]byte) (int, error) } = &raw
	begin := func() {
		if closeMember != nil {
			closeMember()
		}
		entries = append(entries, unpack.Entry{DecodedBytes: int64(decoded.Len()), RawBytes: int64(raw.Len())})
		w, closeMember = memberWriter(t, s.codec, &raw)
	}
	write := func(b []byte) {
		for len(b) > 0 {
			n := len(b)
			if s.memberBytes > 0 {
				if decoded.Len() > 0 && decoded.Len()%s.memberBytes == 0 {
					begin()
				}
				n = min(n, s.memberBytes-decoded.Len()%s.memberBytes)
			}
			decoded.Write(b[:n])
			_, err := w.Write(b[:n])
			require.NoError(t, err)
			b = b[n:]
		}
	}
	for r := range s.records {
		if s.codec != "" && (r == 0 || s.member > 0 && r%s.member == 0) {
			begin()
		}
		if s.gapBytes > 0 {
			write(make([]byte, rng.IntN(s.gapBytes)))
		}
		n := s.maxBytes
		if !s.sameSize {
			n = 1 + rng.IntN(s.maxBytes)
		}
		record := randomRecord(rng, n, s.checksummed)
		off := int64(decoded.Len())
		if s.noNewline && r == s.records-1 {
			record[len(record)-1] = '\n'
			write(record[:len(record)-1])
		} else {
			write(record)
		}
		x.extents = append(x.extents, catalog.Extent{Shard: i, Ordinal: uint64(r), OffsetBytes: off, SizeBytes: int64(len(record))})
		d.records = append(d.records, record)
	}
	if !s.noNewline {
		write(make([]byte, 777)) // like the end of a tar
	}
	if closeMember != nil {
		closeMember()
	}
	shard.DecodedBytes = int64(decoded.Len())
	shard.Codec = map[string]unpack.Codec{"gz": gzip.Codec{}, "zst": zst.Codec{}, "lz4": lz4.Codec{}}[s.codec]
	shard.EntryPoints, shard.Members = uint64(len(entries)), uint64(len(entries))
	if s.memberBytes > 0 {
		shard.EntryPoints = 1
	}
	name := fmt.Sprintf("shard-%03d", i)
	path := filepath.Join(d.dir, name)
	require.NoError(t, os.WriteFile(path, raw.Bytes(), 0o644))
	shard.Object = listed(t, d.dir, name)
	x.shards = append(x.shards, shard)
	x.entries = append(x.entries, entries)
}

func memberWriter(t testing.TB, codec string, to *bytes.Buffer) (interface{ Write([]byte) (int, error) }, func()) {
	switch codec {
	case "lz4":
		w := plz4.NewWriter(to)
		// Else each frame is read into a block of 4 MiB, which the race detector
		// has the pool of pierrec throw away every other time.
		require.NoError(t, w.Apply(plz4.BlockSizeOption(plz4.Block64Kb)))
		return w, func() { require.NoError(t, w.Close()) }
	case "gz":
		w := kgzip.NewWriter(to)
		return w, func() { require.NoError(t, w.Close()) }
	}
	w, err := zstd.NewWriter(to)
	require.NoError(t, err)
	return w, func() { require.NoError(t, w.Close()) }
}

func randomRecord(rng *rand.Rand, n int, checksummed bool) []byte {
	b := make([]byte, n, n+4)
	for i := range b {
		b[i] = "abcdefghijklmnop"[rng.IntN(16)]
	}
	if checksummed {
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	return b
}

// list is a sequence that is written down.
type list []uint64

func (l list) Len() uint64 { return uint64(len(l)) }
func (l list) Records(k uint64, dst []uint64) int {
	if k >= uint64(len(l)) {
		return 0
	}
	return copy(dst, l[k:])
}

// reservoirOrder is a sequence of all records in the manner of ORDER.md:
// lanes, each with a buffer of its own, in turn.
func reservoirOrder(seed uint64, x *plainIndex, lanes, size int) list {
	rng := rand.New(rand.NewPCG(seed, 0))
	n := len(x.extents)
	var out list
	order := rng.Perm(len(x.shards))
	var s []uint64
	for _, i := range order {
		for r := range x.shards[i].Records {
			s = append(s, x.shards[i].First+r)
		}
	}
	ls := make([]list, lanes)
	for l := range ls {
		lane := s[n*l/lanes : n*(l+1)/lanes]
		var slots []uint64
		for len(lane) > 0 || len(slots) > 0 {
			for len(slots) < max(1, size/lanes) && len(lane) > 0 {
				slots, lane = append(slots, lane[0]), lane[1:]
			}
			j := rng.IntN(len(slots))
			ls[l] = append(ls[l], slots[j])
			slots[j] = slots[len(slots)-1]
			slots = slots[:len(slots)-1]
		}
	}
	for i := 0; len(out) < n; i++ {
		for _, l := range ls {
			if i < len(l) {
				out = append(out, l[i])
			}
		}
	}
	return out
}

func randomOrder(seed uint64, x *plainIndex) list {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make(list, len(x.extents))
	for i, r := range rng.Perm(len(out)) {
		out[i] = uint64(r)
	}
	return out
}

func inOrder(x *plainIndex) list {
	out := make(list, len(x.extents))
	for i := range out {
		out[i] = uint64(i)
	}
	return out
}

// deal gives worker w of n its records.
func (l list) deal(w, n int) list {
	var out list
	for i := w; i < len(l); i += n {
		out = append(out, l[i])
	}
	return out
}
