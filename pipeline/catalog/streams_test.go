package catalog

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// shardsOf returns three shards of a synthetic dataset.
func shardsOf(t testing.TB, shape synthetic.Shape, records uint64) map[string][]byte {
	shape.Seed = 1
	require.NoError(t, shape.Validate())
	shards := map[string][]byte{}
	for i := range uint64(3) {
		var b bytes.Buffer
		require.NoError(t, shape.WriteShard(&b, i*records, records, nil))
		shards[fmt.Sprintf("%03d%s", i, shape.Extension())] = b.Bytes()
	}
	return shards
}

// damaged adds a truncated shard, and one with a wrong byte in its middle.
func damaged(shards map[string][]byte) map[string][]byte {
	for name, b := range shards {
		if strings.HasPrefix(name, "000") {
			ending := strings.TrimPrefix(name, "000")
			shards["cut"+ending] = b[:len(b)*2/3+7]
			wrong := bytes.Clone(b)
			wrong[len(b)/2] ^= 0x40
			shards["wrong"+ending] = wrong
			return shards
		}
	}
	return shards
}

// mixedMembers returns a tar with small and large members, some above a MiB.
func mixedMembers() []byte {
	r := rand.New(rand.NewPCG(7, 7))
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 20 {
		size := []int{100, 40_000, 300_000, 1_500_000, 2_500_000}[r.IntN(5)]
		err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.bin", i), Mode: 0o644, Size: int64(size), Format: tar.FormatUSTAR})
		if err == nil {
			_, err = w.Write(make([]byte, size))
		}
		if err != nil {
			panic(err)
		}
	}
	_ = w.Close()
	return b.Bytes()
}

// streamed returns the datasets of these tests: every way in which a format reads.
func streamed(t testing.TB) map[string]map[string][]byte {
	lines := linesOf(12_000, "a")
	r := rand.New(rand.NewPCG(3, 3))
	return map[string]map[string][]byte{
		"tar":              damaged(shardsOf(t, synthetic.Shape{Format: "tar", RecordBytes: 20_000}, 40)),
		"tar, small":       damaged(shardsOf(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 120)),
		"tar, large":       {"0.tar": mixedMembers(), "1.tar": mixedMembers()[:4_000_000]},
		"tar.gz":           damaged(shardsOf(t, synthetic.Shape{Format: "tar", Codec: "gz", RecordBytes: 20_000}, 30)),
		"jsonl":            {"0.jsonl": lines, "1.jsonl": lines[:len(lines)/2], "2.jsonl": append(lines[:100_000:100_000], 0xff, 0)},
		"jsonl.zst":        damaged(shardsOf(t, synthetic.Shape{Format: "jsonl", Codec: "zst", RecordBytes: 2000}, 400)),
		"jsonl.zst frames": {"0.jsonl.zst": framed(r, lines, formattest.Zstd, false), "1.jsonl.zst": framed(r, lines, formattest.Zstd, true)},
		"jsonl.lz4":        damaged(shardsOf(t, synthetic.Shape{Format: "jsonl", Codec: "lz4", RecordBytes: 2000}, 400)),
		"tfrecord":         damaged(shardsOf(t, synthetic.Shape{Format: "tfrecord", RecordBytes: 9000}, 70)),
		"lc0":              {"0.tar": gamesOf(gz(gameOf(6, 60)), damagedGame(6, 20), gz(gameOf(6, 40))), "1.gz": gz(gameOf(6, 30))},
		"npy":              shardsOf(t, synthetic.Shape{Format: "npy", RecordBytes: 3000}, 400),
	}
}

// How long a server may send nothing before another request is made: practically forever in tests
// that count requests, and a short time in tests whose server stalls.
const (
	patient   = 10 * time.Minute
	impatient = time.Second
)

// fromServer opens shards on a server through the engine for remote services.
func fromServer(t *testing.T, server *faultserver.Server, change func(*Config)) (*Catalog, error) {
	return fromServerWithin(t.Context(), t, server, patient, change)
}

func fromServerWithin(ctx context.Context, t *testing.T, server *faultserver.Server, silence time.Duration, change func(*Config)) (*Catalog, error) {
	config := remote.DefaultConfig()
	config.FirstByteTimeout, config.SlowTime, config.SlowBytes = silence, silence, 1
	engine, err := remote.New(faultserver.Connect(t, server), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	target, err := discover.At("http://unkind.test/data", discover.Choice{})
	require.NoError(t, err)
	c := Config{
		Dataset: target.Root(), Target: &target, Format: spec.Format{Name: "auto", Remainder: spec.RemainderCorrupt},
		OnCorrupt: spec.CorruptSkip, IndexDir: t.TempDir(), Profile: storage.DefaultProfile(storage.KindObject), MemoryBytes: 1 << 30,
		OpenStorage: func(string, string) (storage.Storage, error) { return engine, nil },
	}
	if change != nil {
		change(&c)
	}
	return Open(ctx, c)
}

// blobs returns the index of each shard.
func blobs(c *Catalog) map[string]string {
	all := map[string]string{}
	for i := range c.image.Shards() {
		all[c.image.Object(i).Path] = string(c.image.Blob(i))
	}
	return all
}

// gets returns the number of GET requests that a server received.
func gets(server *faultserver.Server) (n int) {
	for _, r := range server.Log() {
		if r.Method == "GET" {
			n++
		}
	}
	return n
}

// The index of shards on a server, damaged ones included, is byte-identical to that of their copies
// on a disk, and each shard takes one request, whatever its format. Faults of the server change
// nothing but the number of requests.
func TestRemoteShardsAreIndexedLikeLocalCopies(t *testing.T) {
	faults := map[string]func(*faultserver.Server){
		"sound":  func(*faultserver.Server) {},
		"resets": func(s *faultserver.Server) { s.On(faultserver.Method("GET"), faultserver.Reset(100_000)).Share(0.6, 1) },
		"stalls": func(s *faultserver.Server) { s.On(faultserver.Method("GET"), faultserver.Stall(70_000)).Times(2) },
		"503": func(s *faultserver.Server) {
			s.On(faultserver.Method("GET"), faultserver.Status(503, "SlowDown")).Times(2)
		},
	}
	for name, shards := range streamed(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for path, b := range shards {
				w.write(path, b)
			}
			// Named, so that no file is opened to find out its format.
			format := func(c *Config) {
				c.Format.Name = strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == ',' })[0]
			}
			here := w.mustOpen(skipping, format)
			require.Positive(t, here.Records())
			for fault, arrange := range faults {
				t.Run(fault, func(t *testing.T) {
					t.Parallel()
					server := faultserver.New()
					for path, b := range shards {
						server.PutBytes(path, b)
					}
					arrange(server)
					silence := patient
					if fault == "stalls" {
						silence = impatient
					}
					there, err := fromServerWithin(t.Context(), t, server, silence, format)
					require.NoError(t, err)
					defer func() { require.NoError(t, there.Close()) }()
					require.Equal(t, here.Fingerprint(), there.Fingerprint())
					require.Equal(t, blobs(here), blobs(there))
					most := len(shards)
					if name == "tar, large" {
						most += 40 // headers after members of more than 1 MiB, and what follows them
					}
					for _, d := range there.Damaged() {
						if d.Errors[0].RawOffset >= 0 {
							most++ // a second pass up to the damaged member
						}
					}
					if fault == "sound" {
						require.LessOrEqual(t, gets(server), most)
					}
				})
			}
		})
	}
}

// manyShards returns a server with n tars of some 400 KB.
func manyShards(t testing.TB, n int) *faultserver.Server {
	server := faultserver.New()
	shape := synthetic.Shape{Format: "tar", RecordBytes: 20_000, Seed: 1}
	for i := range n {
		var b bytes.Buffer
		require.NoError(t, shape.WriteShard(&b, uint64(i*20), 20, nil))
		server.PutBytes(fmt.Sprintf("%03d.tar", i), b.Bytes())
	}
	return server
}

// An interrupted pass ends at once, even if the server does not answer. The next one requests the
// shards that were not finished, and nothing else.
func TestInterruptedPassOverServerContinues(t *testing.T) {
	const shards, answered = 60, 25
	server := manyShards(t, shards)
	dir := t.TempDir()
	set := func(c *Config) { c.IndexDir, c.Format.Name = dir, "tar" }
	server.On(faultserver.Method("GET"), faultserver.Hang()).After(answered)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := fromServerWithin(ctx, t, server, patient, func(c *Config) {
		set(c)
		c.Progress = func(p Progress) {
			if p.Shards > answered/2 && gets(server) > answered { // some hang
				cancel()
			}
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	// The same shards on another server: this one may still receive cancelled requests.
	server = manyShards(t, shards)
	finished := 0
	c, err := fromServer(t, server, func(c *Config) {
		set(c)
		c.Progress = func(p Progress) { finished = p.Reused }
	})
	require.NoError(t, err)
	require.Greater(t, finished, answered/2)
	require.Equal(t, shards-finished, gets(server))
	defer func() { require.NoError(t, c.Close()) }()
	whole, err := fromServer(t, server, func(c *Config) { c.Format.Name = "tar" })
	require.NoError(t, err)
	defer func() { require.NoError(t, whole.Close()) }()
	require.Equal(t, blobs(whole), blobs(c))
}

// A shard that is replaced while it is read ends the pass with an error that reports it.
func TestShardChangedDuringPassIsAnError(t *testing.T) {
	server := faultserver.New()
	server.PutBytes("a.tar", tarOf(3000, "s"))
	server.On(faultserver.Method("GET"), func(r *faultserver.Reply) {
		faultserver.Reset(500_000)(r)
		server.Change("a.tar")
	}).Times(1)
	_, err := fromServer(t, server, func(c *Config) { c.Format.Name = "tar" })
	require.ErrorIs(t, err, storage.ErrChanged)
	require.ErrorContains(t, err, "a.tar changed while it was being indexed")
}

// withoutCaps is a storage that has no streams, and nothing else that is optional.
type withoutCaps struct{ storage.Storage }

func (withoutCaps) Caps() storage.Caps { return storage.Caps{} }

// If the storage has no streams, shards are read by ranges, with the same result.
func TestRemoteShardsAreIndexedWithoutStreams(t *testing.T) {
	server := manyShards(t, 4)
	named := func(c *Config) { c.Format.Name = "tar" }
	streams, err := fromServer(t, server, named)
	require.NoError(t, err)
	defer func() { require.NoError(t, streams.Close()) }()
	require.Equal(t, 4, gets(server))
	ranges, err := fromServer(t, server, func(c *Config) {
		named(c)
		c.OpenStorage = func(o func(string, string) (storage.Storage, error)) func(string, string) (storage.Storage, error) {
			return func(root, dir string) (storage.Storage, error) {
				s, err := o(root, dir)
				return withoutCaps{s}, err
			}
		}(c.OpenStorage)
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, ranges.Close()) }()
	require.GreaterOrEqual(t, gets(server), 8)
	require.Equal(t, blobs(streams), blobs(ranges))
}
