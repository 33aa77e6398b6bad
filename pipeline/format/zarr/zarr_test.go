package zarr_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/zarr"
)

// kindOf returns the kind of crops of (2, 3) elements of a dtype.
func kindOf(descr string) string {
	return fmt.Sprintf(`{"a":[0,0],"arrays":[["sat","","%s",[2,3],[1,1],[null,null],"00"]],"b":[9,9],"brick":[4,4],"dims":["y","x"],"edge":"drop","jitter":false,"kept":"","list":"","missing":"fill","s":[2,3],"stack":false,"wrap":[false,false]}`, descr)
}

// shardOf returns a header followed by n bytes.
func shardOf(kind string, n int) []byte {
	b := []byte(kind)
	for (len(b)+1)%64 != 0 {
		b = append(b, ' ')
	}
	return append(append(b, '\n'), bytes.Repeat([]byte("c"), n)...)
}

// naive parses a shard of kindOf with Go's JSON decoder.
func naive(shard []byte) (o formattest.Outcome) {
	end := bytes.IndexByte(shard, '\n')
	if end < 0 || (end+1)%64 != 0 {
		return formattest.Outcome{Damaged: true}
	}
	kind := strings.TrimRight(string(shard[:end]), " ")
	var k struct {
		Arrays [][]any `json:"arrays"`
	}
	size := 0
	for _, known := range []string{"'<i2'", "'|u1'", "'<f8'"} {
		if kind == kindOf(known) && json.Unmarshal([]byte(kind), &k) == nil {
			size = 6 * int(known[3]-'0')
		}
	}
	if size == 0 || end-len(kind) >= 64 {
		return formattest.Outcome{Damaged: true}
	}
	for at := end + 1; at+size <= len(shard); at += size {
		o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(at), SizeBytes: int64(size)})
	}
	o.Kind, o.Damaged = kind, (len(shard)-end-1)%size != 0
	return o
}

func TestSuite(t *testing.T) {
	formattest.Suite{
		Format: zarr.Format{},
		Shards: []formattest.Shard{{Name: "int16", Bytes: shardOf(kindOf("'<i2'"), 120)}, {Name: "bytes", Bytes: shardOf(kindOf("'|u1'"), 60)}},
		Naive:  sameKinds,
		Draw: func(t *rapid.T) []byte {
			return shardOf(kindOf(rapid.SampledFrom([]string{"'<i2'", "'<f8'", "'<z9'", ""}).Draw(t, "descr")), rapid.IntRange(0, 200).Draw(t, "bytes"))
		},
	}.Run(t)
}

// sameKinds is naive, but uses the format's result for texts that differ from kindOf in a number or
// a name, because those are kinds as well.
func sameKinds(shard []byte) formattest.Outcome {
	o := naive(shard)
	if !o.Damaged || o.Kind != "" {
		return o
	}
	if end := bytes.IndexByte(shard, '\n'); end >= 0 {
		kind := strings.TrimRight(string(shard[:end]), " ")
		if f, err := (zarr.Format{}).OfKind(kind); err == nil && len(shardOf(kind, 0)) == end+1 {
			size := int(f.(zarr.Crops).RecordBytes())
			o = formattest.Outcome{Kind: kind}
			for at := end + 1; at+size <= len(shard); at += size {
				o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(at), SizeBytes: int64(size)})
			}
			o.Damaged = (len(shard)-end-1)%size != 0
		}
	}
	return o
}

func TestCropStreamsAreArrays(t *testing.T) {
	f, err := zarr.Format{}.OfKind(kindOf("'<i2'"))
	require.NoError(t, err)
	p := string(f.(format.Framer).Prologue(12))
	require.Equal(t, "\x93NUMPY\x01\x00\x76\x00{'descr': '<i2', 'fortran_order': False, 'shape': (12, 2, 3), }", strings.TrimRight(p, " \n"))
	require.Zero(t, len(p)%64)
	require.Empty(t, f.(format.Framer).Epilogue(12))
	require.Equal(t, ".npy", f.StreamExtension("a.zarr"))
	_, err = zarr.Format{}.OfKind("{}")
	require.ErrorContains(t, err, "not a kind of format zarr")
}
