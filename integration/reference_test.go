package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	second "github.com/lsiofs/lsiofs/integration/reference"
)

// settings are an order and a deal, with the names of the reference's requests, which are also
// those of the program's flags.
type settings struct {
	Seed         uint64 `json:"seed"`
	Epoch        uint64 `json:"epoch"`
	Shuffle      string `json:"shuffle"`
	ShuffleSize  int    `json:"shuffle-size"`
	Lanes        int    `json:"lanes"`
	Groups       int    `json:"groups"`
	ChunkBytes   int    `json:"chunk-bytes"`
	ChunkRecords int    `json:"chunk-records"`
	Workers      int    `json:"workers"`
	Batch        int    `json:"batch"`
	Split        string `json:"split"`
	SplitSeed    uint64 `json:"split-seed"`
	SplitBy      string `json:"split-by"`
	Sample       string `json:"sample"`
	SampleSeed   uint64 `json:"sample-seed"`
	Deal         string `json:"deal"`
	Tail         string `json:"tail"`
}

// usual returns a small order in which every part matters: several chunks per shard, several lanes,
// a buffer much smaller than the dataset.
func usual() settings {
	return settings{
		Seed: 42, Shuffle: "reservoir", ShuffleSize: 48, Lanes: 4, Groups: 1, ChunkBytes: 3000, ChunkRecords: 8,
		Workers: 3, Batch: 1, Deal: "interleaved", Tail: "keep",
	}
}

// flags returns s as flags of the program, without the epoch.
func (s settings) flags() []string {
	flags := []string{
		"--seed", fmt.Sprint(s.Seed), "--shuffle", s.Shuffle, "--shuffle-size", fmt.Sprint(s.ShuffleSize),
		"--lanes", fmt.Sprint(s.Lanes), "--groups", fmt.Sprint(s.Groups),
		"--chunk-bytes", fmt.Sprint(s.ChunkBytes), "--chunk-records", fmt.Sprint(s.ChunkRecords),
		"--workers", fmt.Sprint(s.Workers), "--batch", fmt.Sprint(s.Batch), "--deal", s.Deal, "--tail", s.Tail,
	}
	if s.Split != "" {
		flags = append(flags, "--split", s.Split, "--split-seed", fmt.Sprint(s.SplitSeed), "--split-by", s.SplitBy)
	}
	if s.Sample != "" {
		flags = append(flags, "--sample", s.Sample, "--sample-seed", fmt.Sprint(s.SampleSeed))
	}
	return flags
}

// part returns s with a split.
func (s settings) part(part, by string, seed uint64) settings {
	s.Split, s.SplitBy, s.SplitSeed = part, by, seed
	return s
}

// taken is an entry in done of a checkpoint.
type taken struct {
	Batch    int    `json:"batch"`
	Deal     string `json:"deal,omitempty"`
	Consumed []int  `json:"consumed"`
}

// reference is a running reference implementation that has loaded one dataset.
type reference struct {
	t       testing.TB
	process *second.Process
}

// newReference starts reference/reference.py on a dataset.
func newReference(t testing.TB, d dataset, extra ...string) *reference {
	t.Helper()
	need(t, "zstd")
	need(t, "lz4")
	var modules []string
	if slices.Contains(d.flags, "zarr") {
		modules = []string{"numpy", "zarr", "numcodecs"}
	}
	p, err := second.Start(python(t, modules...), "reference", d.dir, environment(filepath.Join(scratch, "tmp")), append(d.flags[:len(d.flags):len(d.flags)], extra...))
	require.NoError(t, err)
	watchdog := time.AfterFunc(mountLimit, p.Kill)
	t.Cleanup(func() {
		p.Close()
		watchdog.Stop()
	})
	return &reference{t, p}
}

// question is a request to a reference, besides the settings.
type question struct {
	settings
	Worker int     `json:"worker"`
	From   int     `json:"from"`
	Done   []taken `json:"done,omitempty"`
	Kind   string  `json:"kind"`
}

func (r *reference) ask(q question) []byte {
	r.t.Helper()
	answer, err := r.process.Ask(q)
	require.NoError(r.t, err)
	return answer
}

// data returns the stream of worker w.
func (r *reference) data(s settings, w int) []byte {
	return r.ask(question{settings: s, Worker: w, Kind: "data"})
}

// ids returns the record IDs of worker w's stream.
func (r *reference) ids(s settings, w int) []string {
	return splitIDs(r.ask(question{settings: s, Worker: w, Kind: "ids"}))
}

// g returns the record IDs of the whole epoch, in order.
func (r *reference) g(s settings) []string {
	s.Workers, s.Deal, s.Tail = 1, "interleaved", "keep"
	return r.ids(s, 0)
}

func (r *reference) fingerprint() string {
	return string(r.ask(question{Kind: "fingerprint"}))
}

// splitIDs splits an .ids file.
func splitIDs(b []byte) []string {
	ids := make([]string, 0, len(b)/16)
	for ; len(b) >= 16; b = b[16:] {
		ids = append(ids, string(b[:16]))
	}
	return ids
}

func TestReferenceReproducesPublishedVectors(t *testing.T) {
	for _, vectors := range []string{"order", "mixture"} {
		out := output(t, python(t), "reference/reference.py", "--vectors", "../pipeline/order/testdata/"+vectors+"-vectors.json")
		require.Regexp(t, `^[1-9]\d* vectors hold\n$`, string(out), vectors)
	}
}
