package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// However crops are read, they are the same bytes: with little memory and much, from the page cache
// and past it, by each engine and on one core, and with each strategy.
func TestCropsAreSameForEveryWayOfReading(t *testing.T) {
	serve.Tier(t, serve.CI)
	dice := rand.New(rand.NewPCG(*drawSeed, 15))
	for _, kind := range []string{"sharded-zstd", "plain-blosc", "transposed"} {
		path := store(t, makeVersion3, kind)
		d, s := cropsOf(path, append(smallCrops, "--jitter")...), smallOrder()
		s.Seed, s.Epoch = dice.Uint64()>>1, 1
		ref := newReference(t, d)
		want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
		for _, flags := range [][]string{
			{"--memory", "1MiB"},
			{"--memory", "1MiB", "--direct", "on", "--io", "pread"},
			{"--direct", "on"},
			{"--io", "pread"},
			{"--read", "gather"},
			nil, // on one core
		} {
			t.Run(kind+" "+fmt.Sprint(flags), func(t *testing.T) {
				if flags == nil {
					t.Setenv("GOMAXPROCS", "1")
				}
				m := mountDataset(t, d, s, flags...)
				for w := range want {
					requireFile(t, want[w], m.path("worker-%d.npy", w))
				}
			})
		}
	}
}

// Readers that request ranges of any size anywhere, several at a time, get the same bytes as
// sequential readers.
func TestRangesOfCropsEqualWholeStream(t *testing.T) {
	dice := rand.New(rand.NewPCG(*drawSeed, 16))
	d, s := cropsOf(store(t, makeVersion3, "sharded-blosc-zstd"), append(smallCrops, "--jitter")...), smallOrder()
	ref := newReference(t, d)
	m := mountDataset(t, d, s, "--memory", "1MiB")
	type reader struct {
		epoch uint64
		w     int
		want  []byte
		seed  uint64
	}
	var readers []reader
	for epoch := range uint64(2) { // with other origins
		s.Epoch = epoch
		for w := range s.Workers {
			readers = append(readers, reader{epoch, w, ref.data(s, w), dice.Uint64()})
		}
	}
	var group errgroup.Group
	for _, r := range readers {
		group.Go(func() error {
			f, err := os.Open(m.path("epoch-%d/worker-%d-of-%d.npy", r.epoch, r.w, s.Workers))
			if err != nil {
				return err
			}
			defer f.Close()
			dice := rand.New(rand.NewPCG(r.seed, 0))
			for range 300 {
				at := dice.IntN(len(r.want))
				n := 1 + dice.IntN(min(len(r.want)-at, []int{9, 700, 1 << 20}[dice.IntN(3)]))
				b := make([]byte, n)
				if _, err := f.ReadAt(b, int64(at)); err != nil {
					return err
				}
				if string(b) != string(r.want[at:at+n]) {
					return fmt.Errorf("epoch %d, worker %d: other bytes at [%d, %d); -seed %d draws them again", r.epoch, r.w, at, at+n, *drawSeed)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// A run stopped before any of its records resumes with that one, and in the end has read all
// records of the epoch: with crops that move, and another number of workers.
func TestCropsResumeBeforeEachRecord(t *testing.T) {
	d := cropsOf(store(t, makeVersion3, "sharded-blosc"), "--crop", "time=8,y=20,x=30", "--stride", "time=3,y=7,x=8", "--jitter")
	s := smallOrder()
	s.Epoch, s.Workers = 1, 1
	ref := newReference(t, d)
	g := ref.g(s)
	require.Len(t, g, 18)
	m := mountDataset(t, d, s)
	s.Workers = 2
	for n := range g {
		for w := range s.Workers {
			base := fmt.Sprintf("epoch-1/from-%d/worker-%d-of-2", n, w)
			requireFile(t, ref.ask(question{settings: s, Worker: w, From: n, Kind: "data"}), m.path("%s.npy", base))
			require.Equal(t, ref.ask(question{settings: s, Worker: w, From: n, Kind: "crops"}), m.read("%s.crops.npy", base))
		}
	}
}
