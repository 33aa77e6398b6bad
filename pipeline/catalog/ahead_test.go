package catalog

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
)

// The index of a shard of many frames is byte-identical on any number of cores, and with any memory
// for decoding ahead. Frame boundaries cut records, tar headers and lines anywhere, and some frames
// are damaged.
func TestIndexOfManyFramesIsSameOnAnyNumberOfCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var lines []byte
	for i := range 60_000 {
		lines = fmt.Appendf(lines, "{\"n\": %d, \"text\": %q}\n", i, make([]byte, i%23))
	}
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3 // lines and tars, and damage of both codecs
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t)
			w.write("a.jsonl.zst", framed(r, lines, formattest.Zstd, seed%3 == 1))
			w.write("b.jsonl.lz4", framed(r, lines, formattest.LZ4, seed%3 == 2))
			w.write("c.jsonl.zst", framed(r, lines[:5000], formattest.Zstd, false))
			if seed%2 == 1 {
				w = newWorld(t)
				w.write("a.tar.zst", framed(r, tarOf(400, "s"), formattest.Zstd, seed%3 == 1))
				w.write("b.tar.lz4", framed(r, tarOf(300, "t"), formattest.LZ4, seed%3 == 2))
			}
			var want []byte
			for cores := 1; cores <= 4; cores++ {
				for _, memory := range []int64{0, 1 << 30} {
					runtime.GOMAXPROCS(cores)
					c := w.mustOpen(skipping, func(c *Config) { c.Rebuild, c.MemoryBytes = true, memory })
					require.Positive(t, c.Records())
					got := w.sealed()
					if want == nil {
						want = got
					}
					require.True(t, string(want) == string(got), "%d cores, %d bytes of memory", cores, memory)
				}
			}
		})
	}
}

// framed compresses data in frames of random sizes, some empty and some of several MiB, with
// skippable frames between them. It may damage one.
func framed(r *rand.Rand, data []byte, compress func([]byte) []byte, damage bool) []byte {
	var raw []byte
	for len(data) > 0 {
		n := min(len(data), []int{0, 1, r.IntN(600), r.IntN(40_000), r.IntN(3 << 20)}[r.IntN(5)])
		frame := compress(data[:n])
		if damage && len(raw) > 1000 {
			frame[len(frame)-1] ^= 1
			damage = false
		}
		raw, data = append(raw, frame...), data[n:]
		if r.IntN(4) == 0 {
			raw = append(raw, formattest.Skippable(r.IntN(100))...)
		}
	}
	return raw
}
