package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// of returns s with a sample.
func (s settings) of(sample string, seed uint64) settings {
	s.Sample, s.SampleSeed = sample, seed
	return s
}

// Any three successive epochs are the whole dataset, through a mount and through cat, and each
// equals the reference's.
func TestEpochsOfASampleAreOnePass(t *testing.T) {
	serve.Tier(t, serve.CI)
	allFormats(t, func(t *testing.T, d dataset) {
		ref := newReference(t, d)
		s := usual().of("1/3", 9)
		m := mountDataset(t, d, s, "--memory", "1MiB")
		var came []string
		for epoch := 4; epoch < 7; epoch++ {
			s.Epoch = uint64(epoch)
			for w := range s.Workers {
				want := ref.data(s, w)
				require.Equal(t, len(want), len(m.read("epoch-%d/worker-%d-of-%d%s", epoch, w, s.Workers, d.ext)))
				requireFile(t, want, m.path("epoch-%d/worker-%d-of-%d%s", epoch, w, s.Workers, d.ext))
				came = append(came, splitIDs(m.read("epoch-%d/worker-%d-of-%d.ids", epoch, w, s.Workers))...)
			}
			args := slices.Concat([]string{"cat", d.dir, "--worker", "1", "--epoch", fmt.Sprint(epoch)}, d.flags, s.flags())
			requireSameBytes(t, ref.data(s, 1), toolOK(t, args...), "epoch %d through cat", epoch)
		}
		requireTiles(t, ref.g(usual()), came)
	})
}

// A checkpoint in the middle of epoch 3 of a sample resumes with other workers.
func TestSampleResumesLikeAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(*drawSeed, 11))
	for _, codec := range []codec{codecs[0], codecs[2]} {
		d := makeDataset(t, formatNamed("tar"), codec, 9, 7)
		ref := newReference(t, d)
		for _, part := range []string{"", "0.2..0.9"} {
			s := usual().of("1/2", r.Uint64())
			if part != "" {
				s = s.part(part, "shard", 5)
			}
			s.Seed, s.Epoch = r.Uint64(), 3
			t.Run(d.name+" "+part, func(t *testing.T) { resumeThreeTimes(t, r, d, ref, s) })
		}
	}
}

// Epochs that are read at the same time do not take each other's records.
func TestEpochsOfASampleAreReadThroughOneMountAtTheSameTime(t *testing.T) {
	for _, codec := range []codec{codecs[0], codecs[1]} {
		d := makeDataset(t, formatNamed("jsonl"), codec, 8, 3)
		ref := newReference(t, d)
		for _, read := range []string{"auto", "scan", "spool"} {
			t.Run(d.name+" "+read, func(t *testing.T) {
				s := usual().of("1/4", 2)
				s.Workers = 1
				m := mountDataset(t, d, s, "--memory", "1MiB", "--read", read)
				var group errgroup.Group
				for epoch := range uint64(6) {
					s.Epoch = epoch
					want := ref.data(s, 0)
					path := m.path("epoch-%d/worker-0-of-1%s", epoch, d.ext)
					group.Go(func() error { return compareSlowly(path, want) })
				}
				require.NoError(t, group.Wait())
			})
		}
	}
}

// compareSlowly reads a file in small reads, so that other reads happen in between.
func compareSlowly(path string, want []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	got, b := make([]byte, 0, len(want)), make([]byte, 777)
	for {
		n, err := f.Read(b)
		got = append(got, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if !slices.Equal(want, got) {
		return fmt.Errorf("%s: %d bytes, and the reference has %d others", path, len(got), len(want))
	}
	return nil
}

func TestMountReportsItsSample(t *testing.T) {
	d := plain(t, "jsonl", 6)
	ref := newReference(t, d)
	s := usual().of("1/3", 1)
	counts := make([]int, 3)
	for epoch := range counts {
		s.Epoch = uint64(epoch)
		counts[epoch] = len(ref.g(s))
	}
	require.NotEqual(t, counts[0], counts[1], "or the test shows nothing")
	s.Epoch = 0
	m := mountDataset(t, d, s)
	type described struct {
		Records int
		Order   struct {
			Sample struct{ Of, Seed int }
		}
		Whole struct{ Records int }
	}
	describe := func(path string) (about described) {
		require.NoError(t, json.Unmarshal(m.read("%s", path), &about))
		require.Equal(t, 3, about.Order.Sample.Of)
		require.Equal(t, 1, about.Order.Sample.Seed)
		require.Equal(t, counts[0]+counts[1]+counts[2], about.Whole.Records)
		return about
	}
	require.Equal(t, counts[0], describe("dataset.json").Records)
	require.Contains(t, names(t, m.path("epoch-1")), "dataset.json")
	require.NotContains(t, names(t, m.path("epoch-1/from-1")), "dataset.json")
	for epoch, n := range counts {
		require.Equal(t, n, describe(fmt.Sprintf("epoch-%d/dataset.json", epoch)).Records)
		require.Contains(t, names(t, m.path("epoch-%d/from-%d", epoch, n)), "worker-0-of-3.jsonl")
		_, err := os.Stat(m.path("epoch-%d/from-%d", epoch, 1<<40))
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.Contains(t, string(m.read("README")), fmt.Sprintf("%d records in epoch 0 (--sample 1/3: different in each epoch), divided among 3 workers", counts[0]))
	require.Contains(t, string(m.read("status")), "in this epoch, a sample of 1/3")
	require.JSONEq(t, `{"of": 3, "seed": 1}`, string(m.checkpoint().Order["sample"]))

	// Short forms count the records of their own epoch, and dataset.json changes with them.
	before, err := os.Stat(m.path("dataset.json"))
	require.NoError(t, err)
	require.Error(t, os.WriteFile(m.path("checkpoint"), fmt.Appendf(nil, `{"epoch": 1, "samples": %d}`, 1<<40), 0o644))
	require.Contains(t, m.status().LastRefusal.Reason, fmt.Sprintf("must be at most %d, the records of an epoch", counts[1]))
	m.restore(fmt.Appendf(nil, `{"epoch": 1, "samples": %d}`, counts[1]))
	require.Empty(t, m.read("worker-0.ids"))
	m.restore([]byte(`{"epoch": 1}`))
	s.Epoch = 1
	requireFile(t, ref.data(s, 2), m.path("worker-2.jsonl"))
	require.Equal(t, counts[1], describe("dataset.json").Records)
	after, err := os.Stat(m.path("dataset.json"))
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))

	// Its document does not fit another sample.
	for _, other := range []string{`{"of": 2, "seed": 1}`, `{"of": 3, "seed": 2}`} {
		doc := m.checkpoint()
		doc.Order["sample"] = json.RawMessage(other)
		require.Error(t, os.WriteFile(m.path("checkpoint"), doc.json(t), 0o644))
		require.Contains(t, m.status().LastRefusal.Reason, "order.sample is "+other+` in the checkpoint and {"of": 3, "seed": 1} here`)
	}
	file := filepath.Join(t.TempDir(), "ckpt.json")
	shell(t, `cp "$1" "$2"`, m.path("checkpoint"), file)
	for _, flags := range [][]string{{"--sample", "1/2"}, {"--sample", "1/3", "--sample-seed", "2"}} {
		_, err := tryMount(t, d, t.TempDir(), append(flags, "--resume", file)...)
		require.ErrorContains(t, err, "differs from "+file)
	}
	require.Contains(t, string(toolOK(t, "checkpoint", "show", file)), "1/3 of the records in each epoch, seed 1")
}

func TestInspectVerifyAndPlanUseEpochOfSample(t *testing.T) {
	d := plain(t, "jsonl", 6)
	ref := newReference(t, d)
	for epoch := range uint64(2) {
		s := usual().of("1/2", 4)
		s.Epoch = epoch
		left := ref.g(s)
		var inspected struct {
			Records int
			Sample  struct{ Of, Seed, Epoch int }
		}
		args := func(verb ...string) []string {
			return slices.Concat(verb, []string{d.dir, "--json", "--epoch", fmt.Sprint(epoch)}, d.flags, s.flags())
		}
		require.NoError(t, json.Unmarshal(toolOK(t, args("inspect")...), &inspected))
		require.Len(t, left, inspected.Records)
		assert.Equal(t, 2, inspected.Sample.Of)
		assert.Equal(t, 4, inspected.Sample.Seed)
		assert.EqualValues(t, epoch, inspected.Sample.Epoch)
		var report struct {
			Order struct {
				Claims []struct {
					Problem string
					Records int
				}
			}
		}
		require.NoError(t, json.Unmarshal(toolOK(t, args("verify", "--order")...), &report))
		require.Len(t, left, report.Order.Claims[0].Records)
		for _, claim := range report.Order.Claims {
			require.Empty(t, claim.Problem)
		}
		var plan struct {
			Records     int `json:"records"`
			RecordBytes int `json:"record_bytes"`
		}
		require.NoError(t, json.Unmarshal(toolOK(t, args("plan", "--records", "0", "--worker", "1")...), &plan))
		require.Len(t, ref.ids(s, 1), plan.Records)
		require.Equal(t, len(ref.data(s, 1)), plan.RecordBytes)
	}
}

func TestInvalidSamplesAreRefusedWithExample(t *testing.T) {
	d := plain(t, "lines", 1)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--sample", "0/3"}, `"0/3" is not a share of a dataset: write 1/n with n between 1 and 65536, such as 1/39`},
		{[]string{"--sample", "2/3"}, `"2/3" is not a share of a dataset`},
		{[]string{"--sample", "1/0"}, `"1/0" is not a share of a dataset`},
		{[]string{"--sample", "1/65537"}, `"1/65537" is not a share of a dataset`},
		{[]string{"--sample-seed", "3"}, "name a share, as in --sample 1/8"},
	} {
		for _, verb := range []string{"cat", "inspect", "plan", "verify"} {
			r := tool(t, slices.Concat([]string{verb, d.dir}, d.flags, c.flags)...)
			require.Equal(t, exitUsage, r.code, "%s %q", verb, c.flags)
			require.Contains(t, r.stderr, c.want)
		}
	}
}
