// Package readtest makes what the tests of package read and of the packages below it read: datasets
// on disk with an index of their records, sequences, and storages that tests can observe and
// control. It knows nothing about how records are read.
package readtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Dataset is shards on disk, their records, and their index.
type Dataset struct {
	Dir     string
	Index   *Index
	Records [][]byte  // by number
	Read    spec.Read // how a test reads it
}

// DecodedBytes returns the decoded size of all shards together.
func (d *Dataset) DecodedBytes() int64 {
	n := int64(0)
	for _, s := range d.Index.ShardTable {
		n += s.DecodedBytes
	}
	return n
}

// Shape describes a dataset to make.
type Shape struct {
	Codec       string // "", "gz", "zst" or "lz4"
	Shards      int
	Records     int // per shard
	MaxBytes    int // of a record
	SameSize    bool
	Member      int   // records per member, 0 for all
	MemberBytes int   // if above 0, decoded bytes per member instead, wherever records begin
	PointBytes  int64 // for gz, if above 0: minimum distance of points within members
	GapBytes    int   // maximum number of bytes between records
	NoNewline   bool
	Checksummed bool
	Read        spec.Read // "" for scan
}

// Make writes a dataset of a shape to a directory of the test. Datasets of the same shape are
// identical.
func Make(t testing.TB, s Shape) *Dataset {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	d := &Dataset{Dir: t.TempDir(), Index: &Index{}, Read: s.Read}
	if s.Checksummed {
		d.Index.Format = crcFormat{}
	}
	for i := range s.Shards {
		d.addShard(t, s, i, rng)
	}
	return d
}

// shardWriter is a shard that is being written.
type shardWriter struct {
	shape        Shape
	compress     func([]byte) []byte // nil if it is not compressed
	decoded, raw bytes.Buffer
	memberFrom   int // in decoded
	entries      []format.Entry
}

// beginMember ends the previous member and begins another one.
func (w *shardWriter) beginMember() {
	w.endMember()
	w.entries = append(w.entries, format.Entry{DecodedBytes: int64(w.decoded.Len()), RawBytes: int64(w.raw.Len())})
}

func (w *shardWriter) endMember() {
	if len(w.entries) > 0 {
		w.raw.Write(w.compress(w.decoded.Bytes()[w.memberFrom:]))
		w.memberFrom = w.decoded.Len()
	}
}

func (w *shardWriter) write(b []byte) {
	for len(b) > 0 {
		n := len(b)
		if each := w.shape.MemberBytes; each > 0 {
			if at := w.decoded.Len(); at > 0 && at%each == 0 {
				w.beginMember()
			}
			n = min(n, each-w.decoded.Len()%each)
		}
		w.decoded.Write(b[:n])
		if w.compress == nil {
			w.raw.Write(b[:n])
		}
		b = b[n:]
	}
}

// compressors make a member, by codec.
var compressors = map[string]func([]byte) []byte{"gz": formattest.Gzip, "zst": formattest.Zstd, "lz4": formattest.LZ4}

func (d *Dataset) addShard(t testing.TB, s Shape, i int, rng *rand.Rand) {
	x := d.Index
	shard := catalog.Shard{First: x.Records(), Records: uint64(s.Records)}
	w := shardWriter{shape: s, compress: compressors[s.Codec]}
	for r := range s.Records {
		if s.Codec != "" && (r == 0 || s.Member > 0 && r%s.Member == 0) {
			w.beginMember()
		}
		if s.GapBytes > 0 {
			w.write(make([]byte, rng.IntN(s.GapBytes)))
		}
		n := s.MaxBytes
		if !s.SameSize {
			n = 1 + rng.IntN(s.MaxBytes)
		}
		record := randomRecord(rng, n, s.Checksummed)
		off := int64(w.decoded.Len())
		if s.NoNewline && r == s.Records-1 {
			record[len(record)-1] = '\n'
			w.write(record[:len(record)-1])
		} else {
			w.write(record)
		}
		x.ExtentTable = append(x.ExtentTable, catalog.Extent{Shard: i, Ordinal: uint64(r), OffsetBytes: off, SizeBytes: int64(len(record))})
		d.Records = append(d.Records, record)
	}
	if !s.NoNewline {
		w.write(make([]byte, 777)) // like the end of a tar
	}
	w.endMember()
	shard.DecodedBytes = int64(w.decoded.Len())
	shard.Codec = map[string]format.Codec{"gz": gzip.Codec{}, "zst": zstd.Codec{}, "lz4": lz4.Codec{}}[s.Codec]
	shard.EntryPoints, shard.Members = uint64(len(w.entries)), uint64(len(w.entries))
	if s.MemberBytes > 0 {
		shard.EntryPoints = 1
	}
	shard.DecoderBytes = decoderBytes(t, shard.Codec, w.raw.Bytes())
	name := fmt.Sprintf("shard-%03d", i)
	path := filepath.Join(d.Dir, name)
	require.NoError(t, os.WriteFile(path, w.raw.Bytes(), 0o644))
	shard.Object = Listed(t, d.Dir, name)
	x.ShardTable = append(x.ShardTable, shard)
	x.EntryTable = append(x.EntryTable, w.entries)
	if s.PointBytes > 0 {
		x.addPoints(t, s.PointBytes, w.raw.Bytes())
	}
}

// decoderBytes returns how much memory a decoder of a shard takes, as the index has it; 0 without a
// codec.
func decoderBytes(t testing.TB, codec format.Codec, raw []byte) int64 {
	if codec == nil {
		return 0
	}
	d, err := format.NewDecoded(codec, bytes.NewReader(raw), int64(len(raw)), format.Entry{})
	require.NoError(t, err)
	defer d.Close()
	_, err = io.Copy(io.Discard, d)
	require.NoError(t, err)
	return d.DecoderBytes()
}

// addPoints adds the points of the last shard, as indexing does.
func (x *Index) addPoints(t testing.TB, least int64, raw []byte) {
	i := len(x.ShardTable) - 1
	dec, err := gzip.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	defer dec.Close()
	var points []format.Point
	var begun int64
	dec.(format.PointDecoder).NotePoints(least, func(p format.Point) int64 {
		p.DecodedBytes = begun + p.MemberBytes
		points = append(points, p)
		return least
	})
	entries := x.EntryTable[i]
	for n, e := range entries {
		begun = e.DecodedBytes
		_, err := dec.Next()
		require.NoError(t, err, "member %d", n)
		_, err = io.Copy(io.Discard, decoderReader{dec})
		require.NoError(t, err, "member %d", n)
	}
	for n, p := range points {
		entries = append(entries, format.Entry{RawBytes: p.RawBytes(), DecodedBytes: p.DecodedBytes, Point: n + 1})
	}
	slices.SortStableFunc(entries, func(a, b format.Entry) int { return cmp.Compare(a.DecodedBytes, b.DecodedBytes) })
	x.EntryTable[i] = entries
	x.PointTable = append(x.PointTable, points)
	x.ShardTable[i].Points = uint64(len(points))
}

// decoderReader hides all methods of a decoder except Read.
type decoderReader struct{ d format.Decoder }

func (r decoderReader) Read(p []byte) (int, error) { return r.d.Read(p) }

func randomRecord(rng *rand.Rand, n int, checksummed bool) []byte {
	b := make([]byte, n, n+4)
	bits := uint64(0)
	for i := range b {
		if i%16 == 0 {
			bits = rng.Uint64()
		}
		b[i] = 'a' + byte(bits&15)
		bits >>= 4
	}
	if checksummed {
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	return b
}

// raceShapes has one shape for each way of reading, decoding and keeping records. The other shapes
// only add other bytes, in which the race detector finds nothing new.
var raceShapes = []string{
	"plain", "gz, many members", "gz, points, many members", "zst, many frames, checksum", "lz4, cut anywhere",
	"gathered", "gathered, beyond a block",
}

// Shapes returns datasets of all kinds, by name; if Read is gather they are to be gathered. With
// -short, that is with the race detector, it returns those of raceShapes.
func Shapes() map[string]Shape {
	shapes := map[string]Shape{
		"plain":                      {Shards: 6, Records: 200, MaxBytes: 3000},
		"plain with gaps":            {Shards: 2, Records: 12, MaxBytes: 3000, GapBytes: 3 << 20},
		"small records, no newline":  {Shards: 6, Records: 300, MaxBytes: 40, NoNewline: true},
		"one record a shard":         {Shards: 9, Records: 1, MaxBytes: 100},
		"checksummed":                {Shards: 4, Records: 200, MaxBytes: 2000, Checksummed: true},
		"records beyond a segment":   {Shards: 3, Records: 8, MaxBytes: 200 << 10},
		"gz, one member":             {Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900},
		"gz, many members":           {Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900, Member: 20, NoNewline: true},
		"gz with gaps":               {Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900, Member: 33, GapBytes: 5000},
		"gz, cut anywhere":           {Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900, MemberBytes: 5000, GapBytes: 300},
		"gz, points in a member":     {Codec: "gz", Shards: 2, Records: 50, MaxBytes: 20_000, PointBytes: 128 << 10, GapBytes: 300},
		"gz, points, many members":   {Codec: "gz", Shards: 2, Records: 64, MaxBytes: 20_000, PointBytes: 128 << 10, Member: 33, Checksummed: true},
		"zst, cut anywhere, sums":    {Codec: "zst", Shards: 3, Records: 110, MaxBytes: 900, MemberBytes: 100, Checksummed: true},
		"lz4, cut anywhere":          {Codec: "lz4", Shards: 3, Records: 110, MaxBytes: 900, MemberBytes: 1000, NoNewline: true},
		"zst, one frame":             {Codec: "zst", Shards: 3, Records: 110, MaxBytes: 900, NoNewline: true},
		"zst, many frames, checksum": {Codec: "zst", Shards: 3, Records: 110, MaxBytes: 900, Member: 40, Checksummed: true},
		"gathered":                   {Read: spec.ReadGather, Shards: 6, Records: 200, MaxBytes: 3000},
		"gathered with gaps":         {Read: spec.ReadGather, Shards: 2, Records: 40, MaxBytes: 3000, GapBytes: 20 << 10},
		"gathered, tiny, no newline": {Read: spec.ReadGather, Shards: 6, Records: 300, MaxBytes: 40, NoNewline: true},
		"gathered, checksummed":      {Read: spec.ReadGather, Shards: 4, Records: 200, MaxBytes: 2000, Checksummed: true},
		"gathered, beyond a block":   {Read: spec.ReadGather, Shards: 3, Records: 8, MaxBytes: 200 << 10},
	}
	if !testing.Short() {
		return shapes
	}
	few := map[string]Shape{}
	for _, name := range raceShapes {
		few[name] = shapes[name]
	}
	return few
}

// Scanned returns those of Shapes that are not gathered.
func Scanned() map[string]Shape {
	shapes := Shapes()
	for name, s := range shapes {
		if s.Read == spec.ReadGather {
			delete(shapes, name)
		}
	}
	return shapes
}
