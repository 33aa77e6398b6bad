package formats_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// goldenDir contains shards written by other programs; see make.py there.
const goldenDir = "testdata/golden"

// golden is the expected content of a shard written by another program.
type golden struct {
	How           string `json:"how"`
	DecodedSHA256 string `json:"decoded_sha256"`
	Records       int    `json:"records"`
	RecordsSHA256 string `json:"records_sha256"` // of "offset size\n" for each
}

func goldens(t testing.TB) map[string]golden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenDir, "golden.json"))
	require.NoError(t, err)
	var all map[string]golden
	require.NoError(t, json.Unmarshal(b, &all))
	require.NotEmpty(t, all)
	return all
}

// formatOf returns the format and the codec that a shard's name implies.
func formatOf(t testing.TB, path string) (format.Format, format.Codec) {
	t.Helper()
	stem, codec := formats.Split(path)
	f, err := formats.New(spec.Format{Name: filepath.Ext(stem)[1:]})
	require.NoError(t, err)
	return f, codec
}

func TestForeignShardsMatchAnotherReader(t *testing.T) {
	for name, want := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(goldenDir, name))
			require.NoError(t, err)
			tested, codec := formatOf(t, name)
			var places bytes.Buffer
			records := 0
			var extents []format.Extent
			emit := func(e format.Extent) error {
				records++
				extents = append(extents, e)
				fmt.Fprintf(&places, "%d %d\n", e.OffsetBytes, e.SizeBytes)
				return nil
			}
			restart := func() { t.Fatal("a sound shard is passed over once") }
			sum, err := format.Scan(context.Background(), tested, codec, bytes.NewReader(raw), int64(len(raw)), emit, restart)
			require.NoError(t, err)
			require.Nil(t, sum.Damage)
			require.Equal(t, want.Records, records, "%s\n%s", want.How, &places)
			require.Equal(t, want.RecordsSHA256, sha(places.Bytes()), "%s\n%s", want.How, &places)

			decoded := raw
			if codec != nil {
				r, err := format.NewDecoded(codec, bytes.NewReader(raw), int64(len(raw)), format.Entry{})
				require.NoError(t, err)
				defer r.Close()
				decoded, err = io.ReadAll(r)
				require.NoError(t, err)
			}
			require.Equal(t, want.DecodedSHA256, sha(decoded))
			require.EqualValues(t, len(decoded), sum.DecodedBytes)
			if v, ok := tested.(format.Verifier); ok {
				for _, e := range extents {
					require.NoError(t, v.Verify(decoded[e.OffsetBytes:e.OffsetBytes+e.SizeBytes]))
				}
			}
		})
	}
}

func TestFramesAreMembers(t *testing.T) {
	for _, name := range []string{"pzstd.jsonl.zst", "seekable.jsonl.zst"} {
		t.Run(name, func(t *testing.T) { requireMembers(t, name) })
	}
}

func requireMembers(t *testing.T, name string) {
	raw, err := os.ReadFile(filepath.Join(goldenDir, name))
	require.NoError(t, err)
	tested, codec := formatOf(t, name)
	sum, err := format.Scan(context.Background(), tested, codec, bytes.NewReader(raw), int64(len(raw)), func(format.Extent) error { return nil }, func() {})
	require.NoError(t, err)
	require.Greater(t, len(sum.Members), 1)
	// Each is a place where decoding can start.
	whole, err := format.NewDecoded(codec, bytes.NewReader(raw), int64(len(raw)), format.Entry{})
	require.NoError(t, err)
	defer whole.Close()
	decoded, err := io.ReadAll(whole)
	require.NoError(t, err)
	for _, m := range sum.Members {
		r, err := format.NewDecoded(codec, bytes.NewReader(raw), int64(len(raw)), format.Entry{RawBytes: m.RawBytes, DecodedBytes: m.DecodedBytes})
		require.NoError(t, err)
		rest, err := io.ReadAll(r)
		r.Close()
		require.NoError(t, err)
		require.Equal(t, sha(decoded[m.DecodedBytes:]), sha(rest))
	}
}

// Frames are found by walking them, so a wrong seek table does no harm: whatever its content,
// records and frames are the same.
func TestSeekTableIsNotTrusted(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(goldenDir, "seekable.jsonl.zst"))
	require.NoError(t, err)
	tested, codec := formatOf(t, "seekable.jsonl.zst")
	scan := func(raw []byte) (places string, sum format.Summary) {
		emit := func(e format.Extent) error { places += fmt.Sprintln(e.OffsetBytes, e.SizeBytes); return nil }
		sum, err := format.Scan(context.Background(), tested, codec, bytes.NewReader(raw), int64(len(raw)), emit, func() { places = "" })
		require.NoError(t, err)
		return places, sum
	}
	places, sum := scan(raw)
	require.Nil(t, sum.Damage)
	require.Len(t, sum.Members, 7)
	// The table: 184D2A5E, its size; for each frame its sizes and a checksum; their number, a
	// descriptor, 8F92EAB1.
	table := bytes.LastIndex(raw, []byte{0x5e, 0x2a, 0x4d, 0x18})
	require.Equal(t, len(raw)-8-12*len(sum.Members)-9, table)
	for i := table + 8; i < len(raw); i++ {
		lie := bytes.Clone(raw)
		lie[i] ^= 1 << (i % 8)
		p, s := scan(lie)
		require.Equal(t, places, p)
		require.Equal(t, sum, s)
	}
	p, s := scan(raw[:table])
	require.Equal(t, places, p)
	require.Equal(t, sum, s)
	p, s = scan(raw[:len(raw)-1])
	require.Equal(t, places, p)
	require.NotNil(t, s.Damage)
	require.Equal(t, "the file ends inside a skippable zstd frame", s.Damage.Reason)
}

func TestEveryGoldenShardIsTested(t *testing.T) {
	all := goldens(t)
	files, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	shards := 0
	for _, f := range files {
		if f.Name() != "golden.json" && f.Name() != "make.py" {
			require.Contains(t, all, f.Name())
			shards++
		}
	}
	require.Len(t, all, shards)
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
