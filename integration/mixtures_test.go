package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/integration/servers"
)

// mixtureOf mixes datasets of one format. sources alternates between NAME=WEIGHT and a directory.
func mixtureOf(t testing.TB, of dataset, flags []string, sources ...any) dataset {
	t.Helper()
	d := dataset{name: "mixture of " + of.name, ext: of.ext, flags: slices.Concat(of.flags, flags)}
	for i := 0; i < len(sources); i += 2 {
		d.flags = append(d.flags, "--mix", fmt.Sprintf("%s:%s", sources[i], sources[i+1]))
	}
	return d
}

// oneRecord returns a dataset with a single record: the first one of a shard.
func oneRecord(t testing.TB, f format, c codec) dataset {
	t.Helper()
	require.Contains(t, []string{"tar", "jsonl"}, f.name, "these can be cut behind a record")
	d := dataset{name: "one", dir: t.TempDir(), flags: f.flags, ext: f.ext}
	r := rand.New(rand.NewPCG(7, 3))
	s := f.make(r, 0)
	s.bytes, s.ends = s.bytes[:s.ends[0]], s.ends[:1]
	if f.name == "tar" {
		s.bytes = append(slices.Clone(s.bytes), make([]byte, 1024)...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "only"+f.ext+c.ext), c.compress(r, s), 0o644))
	return d
}

// three mixes three sources of a format: one uncompressed, one compressed, and one with a single
// record, whose weight makes it follow itself.
func three(t testing.TB, name string, flags ...string) dataset {
	t.Helper()
	f := formatNamed(name)
	large := makeDataset(t, f, codecs[0], 4, 7)
	packed := makeDataset(t, f, codecs[1+len(name)%3], 3, 8)
	return mixtureOf(t, large, flags, "web=0.5", large.dir, "code-1=0.25", packed.dir, "code=0.35", oneRecord(t, f, codecs[1]).dir)
}

// Every file of a mixture's mount equals that of the second implementation: orders, resumes within
// a round, workers, tails, ids and offsets.
func TestMixturesEqualReference(t *testing.T) {
	for i, name := range []string{"tar", "jsonl"} {
		for _, length := range []string{"300", "all"} {
			d := three(t, name, "--mix-length", length)
			ref := newReference(t, d)
			for _, s := range append(fiveOrders(), usual().part("0.1..1", "record", 3)) {
				s.Tail = []string{"keep", "drop", "pad"}[i%3]
				s.Batch = max(s.Batch, 1+i%2)
				i++
				t.Run(fmt.Sprintf("%s %s %s %s %s", name, length, s.Shuffle, s.Tail, s.Split), func(t *testing.T) {
					if s.Split != "" { // the only record may be in the other part
						s.SplitSeed = seedThatKeeps(t, d, s)
					}
					requireMountEquals(t, d, ref, s, []int{0, s.Workers - 1}, 17)
				})
			}
		}
	}
}

// seedThatKeeps returns a seed of a split that leaves something of each source.
func seedThatKeeps(t testing.TB, d dataset, s settings) uint64 {
	t.Helper()
	for s.SplitSeed = range uint64(100) {
		if tool(t, slices.Concat([]string{"inspect"}, d.flags, withoutWorkers(s.flags()))...).code == 0 {
			return s.SplitSeed
		}
	}
	require.Fail(t, "no seed leaves something of each source")
	return 0
}

// If a record comes twice in a row in a tar, its names differ.
func TestMixtureRecordThatFollowsItselfIsRenamed(t *testing.T) {
	d := three(t, "tar", "--mix-length", "600")
	ref, s := newReference(t, d), usual()
	s.Workers = 2
	ids, twice := ref.ids(s, 0), 0
	for i := range ids[1:] {
		if ids[i] == ids[i+1] {
			twice++
		}
	}
	require.Greater(t, twice, 5)
	m := mountDataset(t, d, s)
	want := ref.data(s, 0)
	require.Contains(t, string(want), "dup-")
	requireFile(t, want, m.path("worker-0.tar"))
}

func TestMixtureResumesThreeTimes(t *testing.T) {
	serve.Tier(t, serve.CI)
	r := rand.New(rand.NewPCG(*drawSeed, 21))
	for _, name := range []string{"tar", "jsonl"} {
		d := three(t, name, "--mix-length", "500")
		ref := newReference(t, d)
		for _, shuffle := range []string{"reservoir", "full"} {
			s := usual()
			s.Shuffle, s.Seed, s.Epoch = shuffle, r.Uint64(), r.Uint64N(4)
			t.Run(fmt.Sprint(name, " ", shuffle, " ", s.Seed), func(t *testing.T) { resumeThreeTimes(t, r, d, ref, s) })
		}
	}
}

// The length of an epoch, weights by bytes and the identity of a mixture are those of the second
// implementation, with and without a split.
func TestMixturePropertiesEqualReference(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, name := range []string{"tar", "jsonl", "npy"} {
		f := formatNamed(name)
		a, b := makeDataset(t, f, codecs[0], 8, 7), makeDataset(t, f, codecs[3], 6, 8)
		for _, by := range []string{"records", "bytes"} {
			for _, length := range []string{"first", "all", "777"} {
				t.Run(fmt.Sprint(name, " by ", by, " ", length), func(t *testing.T) {
					d := mixtureOf(t, a, []string{"--mix-by", by, "--mix-length", length}, "b=1.000001", a.dir, "a=0.999999", b.dir)
					ref := newReference(t, d)
					for _, s := range []settings{usual(), usual().part("0..0.95", "unit", 5)} {
						g := ref.g(s)
						m := mountDataset(t, d, s)
						var described struct {
							Records     int
							Fingerprint string
						}
						require.NoError(t, json.Unmarshal(m.read("dataset.json"), &described))
						require.Equal(t, len(g), described.Records)
						require.Equal(t, string(ref.ask(question{settings: s, Kind: "fingerprint"})), described.Fingerprint)
						requireFile(t, ref.data(s, 1), m.path("worker-1%s", d.ext))
						m.end()
					}
				})
			}
		}
	}
}

// A mixture of a directory, a bucket and a web server equals that of three directories: bytes,
// fingerprint, and a checkpoint that moves from one mount to the other. The secret in one of the
// URLs is never shown.
func TestMixtureOfDirectoryBucketAndWebServerEqualsThatOfDirectories(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, c := range compressions[:3] {
		t.Run(c.format+c.ending, func(t *testing.T) {
			f := formatNamed(c.format)
			local, packed := makeDataset(t, f, codecs[3], 1, 9), withCodec(t, c.format, c.ending)
			_, _, web := places(t, packed)
			third := makeDataset(t, f, codecs[0], 3, 11)
			_, bucket, _ := places(t, third)
			length := []string{"--mix-length", "400"}
			far := mixtureOf(t, packed, length, "web=1", web.dir, "a=0.5", local.dir, "bucket=1.5", bucket.dir)
			near := mixtureOf(t, packed, length, "web=1", packed.dir, "a=0.5", local.dir, "bucket=1.5", third.dir)
			ref := newReference(t, near)
			for i, more := range [][]string{{}, {"--cache-size", "off", "--memory", "2MiB"}, {"--read", "scan", "--connections", "1"}} {
				s := fiveOrders()[1+i]
				s.Workers = 2 + i
				m := mountDataset(t, far, s, append(more, "--cache-dir", filepath.Join(t.TempDir(), "cache"), "--index-dir", t.TempDir())...)
				for w := range s.Workers {
					requireFile(t, ref.data(s, w), m.path("worker-%d%s", w, far.ext))
				}
				for _, file := range []string{"README", "dataset.json", "status", "status.json", "checkpoint", "metrics"} {
					require.NotContains(t, string(m.read("%s", file)), servers.SecretKey, file)
				}
				require.NotContains(t, m.log.String(), servers.SecretKey)
				mounted, err := os.ReadFile("/proc/self/mountinfo")
				require.NoError(t, err)
				require.NotContains(t, string(mounted), servers.SecretKey)
				m.end()
			}
			requireEpochMoves(t, near, ref, usual(), []place{{far, "services", nil}, {near, "disks", nil}, {far, "services again", nil}})
		})
	}
}

// status.json and metrics have what was delivered of each source, which matches the weights.
func TestStatusAndMetricsShowShareOfEachSource(t *testing.T) {
	f := formatNamed("jsonl")
	a, b := makeDataset(t, f, codecs[0], 1, 9), makeDataset(t, f, codecs[0], 2, 11)
	s := usual()
	s.Workers = 1
	m := mountDataset(t, mixtureOf(t, a, []string{"--mix-length", "400"}, "web=1", a.dir, "code=3", b.dir), s)
	_, err := os.ReadFile(m.path("worker-0.jsonl"))
	require.NoError(t, err)
	var status struct {
		Sources []struct {
			Name    string  `json:"name"`
			Records uint64  `json:"records"`
			Share   float64 `json:"share"`
		} `json:"sources"`
	}
	require.NoError(t, json.Unmarshal(m.read("status.json"), &status))
	require.Len(t, status.Sources, 2)
	metrics := string(m.read("metrics"))
	for i, want := range []struct {
		name  string
		share float64
	}{{"web", 0.25}, {"code", 0.75}} {
		x := status.Sources[i]
		require.Equal(t, want.name, x.Name)
		require.InDelta(t, want.share, x.Share, 0.03)
		require.InDelta(t, float64(x.Records)/400, x.Share, 1e-9)
		require.Contains(t, metrics, fmt.Sprintf("\nlsiofs_source_records{source=%q} %d\n", x.Name, x.Records))
		require.Contains(t, metrics, fmt.Sprintf("\nlsiofs_source_share{source=%q} %v\n", x.Name, x.Share))
	}
	require.EqualValues(t, 400, status.Sources[0].Records+status.Sources[1].Records)
	plain := mountDataset(t, a, s)
	require.NotContains(t, string(plain.read("metrics")), "lsiofs_source")
}
