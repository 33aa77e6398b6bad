package pipeline

import (
	"fmt"
	"io/fs"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// planSeeds are the seeds of the orders that BenchmarkPlans compares.
var planSeeds = []uint64{1, 2, 3}

// plannedData is a dataset, local and at a web server.
type plannedData struct {
	name string
	make func(testing.TB) (dir, pattern string) // pattern is the dataset's name below dir
	spec func(*spec.Spec)
	// below means that records are made from files of another storage: local reads of these are
	// counted by the engine, and bypass the page cache.
	below  bool
	noWeb  bool
	memory int64 // the only one that it is for; 0: all
}

// BenchmarkPlans compares what plan forecasts for an epoch with what reading it through a stream
// then takes: requests, bytes, and decoded bytes, as forecast ÷ real. It reports the mean of three
// orders, and logs a row of a table with the least and the greatest. It measures no time:
//
//	go test ./pipeline -run '^$' -bench Plans -benchtime 1x
//
// A web server counts requests; local reads are counted as if the page cache were empty.
func BenchmarkPlans(b *testing.B) {
	const mib = 1 << 20
	shape := func(s synthetic.Shape) func(testing.TB) (string, string) {
		return func(t testing.TB) (string, string) {
			return makeShards(t, s, 12, 4*mib/uint64(s.RecordBytes)), "s{000..011}" + s.Extension()
		}
	}
	crops := func(c plannedCrops, memory int64) plannedData {
		return plannedData{name: c.name, memory: memory, below: true, make: func(t testing.TB) (string, string) {
			dir, _, _ := c.serve(t, 1)
			return filepath.Dir(dir), "a.zarr"
		}, spec: func(s *spec.Spec) {
			o := c.spec(b, "")
			s.Format, s.Order = o.Format, o.Order
		}}
	}
	all := []plannedData{
		{name: "tar", make: shape(synthetic.Shape{Format: "tar", RecordBytes: 6000})},
		{name: "jsonl.zst", make: shape(synthetic.Shape{Format: "jsonl", RecordBytes: 2000, Codec: "zst"})},
		{name: "jsonl.gz", make: shape(synthetic.Shape{Format: "jsonl", RecordBytes: 2000, Codec: "gz"})},
		{name: "npy", make: shape(synthetic.Shape{Format: "npy", RecordBytes: 3000})},
		{name: "--array of npy", below: true, noWeb: true, spec: joinArrays, make: func(t testing.TB) (string, string) {
			return makeArrays(t, 3000, 48*mib), ""
		}},
	}
	for _, c := range plannedCropsList {
		all = append(all, crops(c, 12*mib))
		c.array.Shape = []int64{max(c.array.Shape[0], 96), 512, 512} // larger than the memory for chunks, too
		all = append(all, crops(c, 64*mib))
	}
	for _, c := range all {
		dir, pattern := c.make(b)
		server := serveFiles(b, dir)
		h := httptest.NewServer(server.server)
		b.Cleanup(h.Close)
		for _, memory := range []int64{12 * mib, 64 * mib} {
			if c.memory != 0 && c.memory != memory {
				continue
			}
			for _, shuffle := range []spec.Shuffle{spec.ShuffleBlock, spec.ShuffleReservoir, spec.ShuffleFull} {
				for _, web := range []bool{false, true} {
					if web && c.noWeb {
						continue
					}
					where := map[bool]string{false: "local", true: "http"}[web]
					b.Run(fmt.Sprintf("%s/%s/%d_MiB/%s", strings.ReplaceAll(c.name, " ", "_"), shuffle, memory/mib, where), func(b *testing.B) {
						for b.Loop() {
							ratios := map[string][]float64{}
							var used []string
							for _, seed := range planSeeds {
								s := spec.Default()
								s.IndexDir, s.Cache.Off, s.SpoolDir = b.TempDir(), true, readtest.DiskDir(b)
								s.Order.SizeRecords, s.Order.Lanes = 4096, 8
								if c.spec != nil {
									c.spec(&s)
								}
								s.Order.Seed, s.Order.Shuffle, s.MemoryBytes, s.Deal.Workers, s.Remote.Hedge = seed, shuffle, memory, 1, spec.HedgeOff
								if s.Dataset = dir; strings.HasSuffix(pattern, ".zarr") {
									s.Dataset = filepath.Join(dir, pattern)
								}
								var log *servedCrops
								if web {
									s.Dataset, log = h.URL+"/"+pattern, &server
								} else if c.below {
									s.Direct = spec.DirectOn
								}
								strategy := planAndRead(b, s, c.below, log, ratios)
								if len(used) == 0 || used[len(used)-1] != strategy {
									used = append(used, strategy)
								}
							}
							row := []string{c.name, string(shuffle), fmt.Sprint(memory / mib), where, strings.Join(used, ",")}
							for _, what := range []string{"requests", "bytes", "decoded"} {
								x, text := meanOf(ratios[what])
								row = append(row, text)
								b.ReportMetric(x, what+"/real")
							}
							b.Logf("| %s |", strings.Join(row, " | "))
						}
					})
				}
			}
		}
	}
}

// planAndRead appends forecast ÷ real to ratios, of one epoch, and returns the strategy.
func planAndRead(t testing.TB, s spec.Spec, below bool, log *servedCrops, ratios map[string][]float64) string {
	var counted readtest.CountedStorage
	var o Options
	if !below && log == nil {
		o.Faults = func(x storage.Storage) storage.Storage { counted.Storage = x; return &counted }
	}
	d, err := Open(t.Context(), s, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	set, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	f, err := d.Forecast(t.Context(), set.View(), 0, 1<<60)
	require.NoError(t, err)
	x := f.Storages[0]
	var reads ReadsForecast
	var decoded int64
	switch x.Strategy {
	case spec.ReadScan:
		reads, decoded = x.Scan.ReadsForecast, x.Scan.DecodedBytes
	case spec.ReadSpool:
		reads, decoded = x.Spool.ReadsForecast, x.Spool.DecodedBytes
	default:
		if reads = x.Gather.ReadsForecast; x.Gather.Crops != nil {
			decoded = x.Gather.Crops.DecodedBytes
		}
	}
	count := func() (requests, bytes float64) {
		switch {
		case log != nil:
			n, m := log.since(0)
			return float64(n), float64(m)
		case below:
			e := d.Status().Engine
			return float64(e.Reads), float64(e.ReadBytes)
		}
		return float64(counted.Reads.Load()), float64(counted.Bytes.Load())
	}
	requests, bytes := count()
	readFile(t, set, 0, stream.Data, 1<<20)
	requestsNow, bytesNow := count()
	ratios["requests"] = append(ratios["requests"], float64(reads.Reads)/(requestsNow-requests))
	ratios["bytes"] = append(ratios["bytes"], float64(reads.ReadBytes)/(bytesNow-bytes))
	really := float64(d.Status().Fetch.DecodedBytes)
	if cubes := d.Status().Cubes; cubes != nil {
		really = float64(cubes.DecodedBytes)
	}
	if really > 0 || decoded > 0 {
		ratios["decoded"] = append(ratios["decoded"], float64(decoded)/really)
	}
	return string(x.Strategy)
}

// meanOf returns the mean, and as text also the least and the greatest.
func meanOf(list []float64) (mean float64, text string) {
	if len(list) == 0 {
		return 1, "–"
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, x := range list {
		mean += x / float64(len(list))
		least, most = min(least, x), max(most, x)
	}
	return mean, fmt.Sprintf("%.2f (%.2f–%.2f)", mean, least, most)
}

// makeArrays writes arrays that are read together, with rows of rowBytes and of 40 bytes.
func makeArrays(t testing.TB, rowBytes, bytes int64) (dir string) {
	dir = t.TempDir()
	n := uint64(bytes / rowBytes / 4)
	for i := range uint64(4) {
		for name, size := range map[string]int64{"x": rowBytes, "y": 40} {
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s%d.npy", name, i)))
			require.NoError(t, err)
			require.NoError(t, synthetic.Shape{Format: "npy", RecordBytes: size}.WriteShard(f, i*n, n, nil))
			require.NoError(t, f.Close())
		}
	}
	return dir
}

// joinArrays makes a spec read the arrays of makeArrays together.
func joinArrays(s *spec.Spec) {
	s.Format.Arrays = []spec.Array{{Name: "x", Pattern: "x*.npy"}, {Name: "y", Pattern: "y*.npy"}}
}

// serveFiles serves the files below a directory.
func serveFiles(t testing.TB, dir string) servedCrops {
	w := servedCrops{faultserver.New(), map[string]int64{}}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name := strings.TrimPrefix(path, dir+"/")
		w.sizes[name] = int64(len(b))
		w.server.PutBytes(name, b)
		return err
	}))
	return w
}

// plannedCropsList is arrays with chunks that are shorter and longer than crops, in shards or not,
// compressed or not.
var plannedCropsList = []plannedCrops{
	{"short chunks in shards", encode.Array{Shape: []int64{32, 192, 192}, Object: []int64{16, 64, 64}, Chunk: []int64{8, 32, 32}, Codec: encode.Zstd}, 48, 16},
	{"long chunks", encode.Array{Shape: []int64{64, 256, 256}, Object: []int64{32, 128, 128}, Chunk: []int64{32, 128, 128}, Codec: encode.Zstd}, 32, 16},
	{"long chunks of blocks", encode.Array{Shape: []int64{256, 128, 128}, Object: []int64{256, 64, 64}, Chunk: []int64{256, 64, 64}, Codec: encode.BloscLZ4, BlockBytes: 128 << 10}, 32, 16},
	{"chunks without a codec", encode.Array{Shape: []int64{32, 192, 192}, Object: []int64{8, 32, 32}, Chunk: []int64{8, 32, 32}, Codec: encode.None}, 48, 16},
}
