package pipeline

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// plannedCrops is an array and the crops that are cut from it.
type plannedCrops struct {
	name         string
	array        encode.Array
	crop, stride int64
}

// A plan of an epoch of crops is what reading it through a stream takes, of a web server and of
// files: requests, bytes, and what is decoded. Chunks are shorter and longer than crops, in shards
// or not, and memory holds them or does not.
func TestPlansOfCropsAreWhatAStreamThenReads(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector changes no count")
	}
	const mib = 1 << 20
	for i, c := range plannedCropsList {
		seed := uint64(i + 1)
		dir, url, served := c.serve(t, seed)
		for _, memory := range []int64{12 * mib, 64 * mib} {
			for _, shuffle := range []spec.Shuffle{spec.ShuffleBlock, spec.ShuffleReservoir, spec.ShuffleFull} {
				if c.array.Codec == encode.None && memory > 12*mib {
					// Nothing is kept, and the epoch is about as long as the first, short stretches: what
					// these have in common is found if the reader is slow. BenchmarkPlans has longer ones.
					continue
				}
				for _, dataset := range []string{dir, url} {
					t.Run(fmt.Sprintf("%s, %d MiB, shuffle %s, seed %d, web %v", c.name, memory/mib, shuffle, seed, dataset == url), func(t *testing.T) {
						s := c.spec(t, dataset)
						s.Order.Shuffle, s.Order.Seed, s.MemoryBytes = shuffle, seed, memory
						d := open(t, s)
						x := forecast(t, d, 0, 1<<60).Storages[0].Gather
						set, err := d.Set(t.Context(), 0, nil, s.Deal)
						require.NoError(t, err)
						before := len(served.server.Log())
						readFile(t, set, 0, stream.Data, mib)
						cubes := d.Status().Cubes
						if dataset == url {
							requests, bytes := served.since(before)
							require.InEpsilon(t, requests, x.Reads, 0.1)
							require.InDelta(t, float64(bytes), float64(x.ReadBytes), max(0.1*float64(bytes), mib), "at most a chunk more or less")
						}
						// Some blocks of a chunk may be decoded at a time, and others later.
						require.InDelta(t, float64(cubes.Decoded), float64(x.Crops.Chunks), max(0.1*float64(cubes.Decoded), 6))
						require.InDelta(t, float64(cubes.DecodedBytes), float64(x.Crops.DecodedBytes), 0.1*float64(cubes.DecodedBytes))
					})
				}
			}
		}
	}
}

// servedCrops is a web server that has an array.
type servedCrops struct {
	server *faultserver.Server
	sizes  map[string]int64
}

// since counts the requests after the first n, and their bytes.
func (w servedCrops) since(n int) (requests int, bytes int64) {
	for _, r := range w.server.Log()[n:] {
		switch {
		case r.Method != "GET":
			continue
		case r.Begin < 0:
			bytes += w.sizes[r.Path]
		default:
			bytes += r.End - r.Begin
		}
		requests++
	}
	return requests, bytes
}

// serve writes the array, and serves it.
func (c plannedCrops) serve(t testing.TB, seed uint64) (dir, url string, w servedCrops) {
	dir = filepath.Join(t.TempDir(), "a.zarr")
	a := c.array
	a.Dims, a.DataType, a.ItemBytes = []string{"t", "y", "x"}, "int16", 2
	rng := rand.New(rand.NewPCG(seed, 0))
	require.NoError(t, a.Write(filepath.Join(dir, "data"), func(_ []int64, b []byte) bool {
		for i := 0; i < len(b); i += 2 {
			binary.LittleEndian.PutUint16(b[i:], uint16(rng.IntN(1000)))
		}
		return true
	}))
	writeGroup(t, dir)
	w = servedCrops{faultserver.New(), map[string]int64{}}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name := "a.zarr" + strings.TrimPrefix(path, dir)
		w.sizes[name] = int64(len(b))
		w.server.PutBytes(name, b)
		return err
	}))
	h := httptest.NewServer(w.server)
	t.Cleanup(h.Close)
	return dir, h.URL + "/a.zarr", w
}

func (c plannedCrops) spec(t testing.TB, dataset string) spec.Spec {
	s := spec.Default()
	s.Dataset, s.IndexDir, s.Cache.Off = dataset, t.TempDir(), true
	s.Format.Name = "zarr"
	s.Format.Zarr = spec.Zarr{Fields: []spec.Array{{Pattern: "data"}}, Jitter: true}
	for dim, n := range map[string][2]int64{"t": {8, 8}, "y": {c.crop, c.stride}, "x": {c.crop, c.stride}} {
		s.Format.Zarr.Crop = append(s.Format.Zarr.Crop, spec.DimValue{Dim: dim, Value: n[0]})
		s.Format.Zarr.Stride = append(s.Format.Zarr.Stride, spec.DimValue{Dim: dim, Value: n[1]})
	}
	s.Order = spec.ZarrOrder(s.Order)
	s.Order.SizeRecords, s.Deal.Workers, s.Remote.Hedge = 512, 1, spec.HedgeOff
	return s
}

// Forecasts of crops end with their context, and leave nothing that Close waits for.
func TestForecastsOfCropsEndWithTheirContext(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, dir, 0, 20)
	d := open(t, cropSpec(t, dir))
	set, err := d.Set(t.Context(), 0, nil, d.Spec().Deal)
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = d.Forecast(ended, set.View(), 0, 1<<60)
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.ForecastCrops(ended)
	require.ErrorIs(t, err, context.Canceled)
}
