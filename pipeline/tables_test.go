package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// tables are where the Parquet files of tests are. Package parquet writes those of format/tables,
// and another program wrote the vectors.
const (
	tables  = "format/tables/testdata"
	vectors = "format/parquet/testdata/vectors"
)

func tablesSpec(t testing.TB, dataset string, change func(*spec.Format)) spec.Spec {
	s := testSpec(t, dataset)
	if change != nil {
		change(&s.Format)
	}
	return s
}

// stream0 returns the only worker's stream.
func stream0(t testing.TB, s spec.Spec, n int) []byte {
	s.Deal.Workers = 1
	d := open(t, s)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	return readFile(t, set, 0, stream.Data, n)
}

func TestVectorsOfTables(t *testing.T) {
	for _, v := range []struct {
		want   string
		shards map[string]string // by path: their files
		change func(*spec.Format)
	}{
		{"parquet-jsonl.jsonl", map[string]string{"data/train-00000-of-00002.parquet": "", "data/train-00001-of-00002.parquet": ""}, func(f *spec.Format) { f.As = spec.AsJSONL }},
		{"parquet-columns.jsonl", map[string]string{"data/train-00000-of-00002.parquet": "", "data/train-00001-of-00002.parquet": ""}, func(f *spec.Format) { f.Rows.Columns = "text,i=id" }},
		{"parquet-tar.tar", map[string]string{"d.v1/train.0.parquet": ""}, nil},
		{"parquet-tar-named.tar", map[string]string{"d.v1/train.0.parquet": ""}, func(f *spec.Format) { f.Rows.Columns = "jpg=image,txt=caption,cls=label" }},
		{"parquet-npy.npy", map[string]string{"a.parquet": ""}, func(f *spec.Format) { f.As = spec.AsNPY }},
		{"parquet-pack.npy", map[string]string{"t-0.parquet": "", "t-1.parquet": ""}, func(f *spec.Format) { f.Rows = spec.Rows{Columns: "input_ids", Pack: "4", EOS: "0"} }},
		{"parquet-pack-labels.npy", map[string]string{"t-0.parquet": "", "t-1.parquet": ""}, func(f *spec.Format) { f.Rows = spec.Rows{Columns: "input_ids", Pack: "4+1", EOS: "0"} }},
	} {
		dir := t.TempDir()
		for path := range v.shards {
			data, err := os.ReadFile(filepath.Join(vectors, filepath.Base(path)))
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, path), data, 0o644))
		}
		want, err := os.ReadFile("rows/testdata/" + v.want)
		require.NoError(t, err)
		for _, memory := range []int64{1 << 20, 1 << 30} {
			for _, n := range []int{1, 4095, stream.MaxReadBytes} {
				s := tablesSpec(t, dir, v.change)
				s.Order.Shuffle, s.MemoryBytes = spec.ShuffleNone, memory
				require.Equal(t, string(want), string(stream0(t, s, n)), "%s, memory %d, reads of %d", v.want, memory, n)
			}
		}
	}
}

// Files of the same rows in other row groups, pages and compressions have the same streams.
func TestStreamsOfTablesDoNotDependOnRowGroupsBudgetsOrStrategies(t *testing.T) {
	lines, err := os.ReadFile(tables + "/text.jsonl")
	require.NoError(t, err)
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleFull, spec.ShuffleNone} {
		var want []byte
		for _, dir := range []string{"text", "rewritten"} {
			for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadGather, spec.ReadSpool} {
				for _, memory := range []int64{1 << 20, 1 << 30} {
					s := tablesSpec(t, filepath.Join(tables, dir), nil)
					s.Order.Shuffle, s.Read, s.MemoryBytes = shuffle, read, memory
					got := stream0(t, s, 100_000)
					if want == nil {
						want = got
					}
					require.True(t, bytes.Equal(want, got), "%s, shuffle %s, read %s, memory %d", dir, shuffle, read, memory)
				}
			}
		}
		require.Equal(t, sorted(lines), sorted(want))
		require.Equal(t, shuffle == spec.ShuffleNone, bytes.Equal(lines, want))
	}
}

func sorted(lines []byte) string {
	list := slices.Sorted(bytesLines(lines))
	return strings.Join(list, "")
}

func bytesLines(b []byte) func(yield func(string) bool) { return strings.Lines(string(b)) }

func TestSamplesAndTokensOfTablesAreTheSameForEveryBudget(t *testing.T) {
	for name, change := range map[string]func(*spec.Format){
		"images": func(f *spec.Format) { f.As = spec.AsTar },
		"tokens": func(f *spec.Format) { f.Rows = spec.Rows{Pack: "16+1", EOS: "-1"} },
		"text":   func(f *spec.Format) { f.Rows.Groups = true },
		"long":   nil, // its row groups have points
	} {
		var want [32]byte
		for i, memory := range []int64{1 << 30, 1 << 20} {
			for _, n := range []int{4095, stream.MaxReadBytes} {
				s := tablesSpec(t, filepath.Join(tables, name), change)
				s.MemoryBytes = memory
				got := stream0(t, s, n)
				sum := sha256.Sum256(got)
				if i == 0 && n == 4095 {
					want = sum
					require.Greater(t, len(got), 1000)
				}
				require.Equal(t, want, sum, "%s, memory %d, reads of %d", name, memory, n)
			}
		}
	}
}

// A damaged row group is left out, alone and by name; a damaged footer is the shard.
func TestDamagedRowGroupsAreLeftOutAlone(t *testing.T) {
	lines, err := os.ReadFile(tables + "/text.jsonl")
	require.NoError(t, err)
	data, err := os.ReadFile(tables + "/text/a.parquet")
	require.NoError(t, err)
	all := slices.Collect(bytesLines(lines))[:1500]
	for _, c := range []struct {
		at   int
		want []string
	}{
		{1000, all[300:]}, // in the first row group, of 300 rows
		{len(data) / 2, slices.Concat(all[:301], all[1001:])}, // in the third
	} {
		dir := t.TempDir()
		damaged := slices.Clone(data)
		damaged[c.at] ^= 0x55
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.parquet"), damaged, 0o644))
		s := tablesSpec(t, dir, nil)
		s.Order.Shuffle = spec.ShuffleNone
		_, err := Open(context.Background(), s, Options{})
		require.Regexp(t, `^a\.parquet: offset \d+: row group \d, row \d+ or after it, at byte \d+ of the file: column \w+: `, err.Error())
		s.OnCorrupt = spec.CorruptSkip
		require.Equal(t, strings.Join(c.want, ""), string(stream0(t, s, 50_000)), "byte %d", c.at)
		s.Order.Shuffle = spec.ShuffleReservoir
		require.Equal(t, sorted([]byte(strings.Join(c.want, ""))), sorted(stream0(t, s, 50_000)))
		d := open(t, s)
		text, err := d.Describe()
		require.NoError(t, err)
		require.Contains(t, string(text), "row group ")
	}
}

// A damaged shard does not decide how the others are presented.
func TestTheFirstIntactShardDecidesHowTablesArePresented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(vectors, "train.0.parquet"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.parquet"), data[:len(data)/2], 0o644))
	s := tablesSpec(t, dir, nil)
	s.OnCorrupt = spec.CorruptSkip
	_, err = Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "a.parquet: record 0 at offset 0: the file ends in ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.parquet"), data, 0o644))
	require.Contains(t, string(stream0(t, s, 4095)), "b/000000000.json\x00")
	s.OnCorrupt = spec.CorruptFail
	_, err = Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "a.parquet: record 0 at offset 0: the file ends in ")
}

func TestKeysOfSamplesCountWhatIsThere(t *testing.T) {
	data, err := os.ReadFile(tables + "/images/i.parquet")
	require.NoError(t, err)
	dir := t.TempDir()
	data[20] ^= 0x55 // in the first row group, of 40 rows
	require.NoError(t, os.WriteFile(filepath.Join(dir, "i.parquet"), data, 0o644))
	s := tablesSpec(t, dir, func(f *spec.Format) { f.As = spec.AsTar })
	s.OnCorrupt, s.Order.Shuffle = spec.CorruptSkip, spec.ShuffleNone
	whole := stream0(t, s, stream.MaxReadBytes)
	require.Equal(t, 460, bytes.Count(whole, []byte(".json\x00")))
	require.True(t, bytes.HasPrefix(whole, []byte("i/000000000.json\x00")))
	require.Contains(t, string(whole), "i/000000459.json\x00")
	s.Order.Shuffle, s.MemoryBytes = spec.ShuffleFull, 1<<20
	mixed := stream0(t, s, stream.MaxReadBytes)
	for i := range 460 {
		require.Contains(t, string(mixed), fmt.Sprintf("i/%09d.json\x00", i))
	}
}

func TestEveryRowIsAnEntryPointUnlessGroupsAreCut(t *testing.T) {
	for groups, want := range map[bool]uint64{false: 1500, true: 4} {
		s := tablesSpec(t, tables+"/text/a.parquet", func(f *spec.Format) { f.Rows.Groups = groups })
		d := open(t, s)
		require.Equal(t, want, d.current.catalog.Shard(0).EntryPoints)
	}
}

func TestTablesOfOtherColumnsAreRefusedInWords(t *testing.T) {
	for _, c := range []struct {
		change func(*spec.Format)
		want   string
	}{
		{func(f *spec.Format) { f.Rows.Columns = "nothing" }, ".parquet: --columns: there is no nothing: the columns are "},
		{func(f *spec.Format) { f.Rows = spec.Rows{Columns: "n", Pack: "4"} }, ".parquet: column n: --pack needs lists of ints"},
		{func(f *spec.Format) { f.Rows = spec.Rows{Columns: "n", Pack: "4", Dtype: "u1"} }, "--dtype u1: it must be"},
		{func(f *spec.Format) { f.Rows.Columns = "a,,b" }, "--columns"},
		{func(f *spec.Format) { f.Rows.EOS = "3" }, "need --pack"},
		{func(f *spec.Format) { f.Rows.Pack = "0" }, "--pack 0"},
		{func(f *spec.Format) { f.As = spec.AsNPY }, "text"},
		{func(f *spec.Format) { f.Name, f.Rows.Columns = "jsonl", "n" }, "--format parquet"},
	} {
		_, err := Open(context.Background(), tablesSpec(t, tables+"/text", c.change), Options{})
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "--exclude", "the file is not at fault")
	}
}

func TestGrowingTablesNeedAPresentation(t *testing.T) {
	s := tablesSpec(t, t.TempDir(), nil)
	data, err := os.ReadFile(tables + "/images/i.parquet")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dataset, "i.parquet"), data, 0o644))
	s.Grow.On, s.Format.Name = true, "parquet"
	_, err = Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "--as jsonl, tar or npy")
}
