package readtest

import (
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

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
