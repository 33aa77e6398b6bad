package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// The states that are computed for a mixture's epoch are stored next to its index, so that the next
// run can begin deep in the epoch at once.
func TestStatesOfMixtureEpochAreStoredForNextRun(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("one core goes through the order in one go, without states")
	}
	s := testSpec(t, "")
	s.Order = spec.Default().Order
	for i, name := range []string{"a", "b"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".txt"), []byte(strings.Repeat(name+"\n", 300_000+i)), 0o644))
		s.Mix.Sources = append(s.Mix.Sources, spec.Source{Name: name, Weight: million(1), Dataset: dir})
	}
	s.Format.Name, s.Order.Length = "lines", 2_000_000
	want := sizesOf(t, s, 3, nil)
	require.Len(t, storedFiles(t, s, statesEnding), 1)
	d := open(t, s)
	set, err := d.Set(context.Background(), 3, nil, s.Deal)
	require.NoError(t, err)
	require.True(t, set.View().Epoch().Prepared())
	require.Equal(t, want, sizesOf(t, s, 3, nil))
}

// A source with very few records comes hundreds of times per epoch: for any strategy, memory and
// number of workers, and wherever the workers stopped, the bytes are those of the reference.
func TestTinySourceRepeatsHundredsOfTimesPerEpoch(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	counts := []int{2, 1, 7}
	if testing.Short() {
		counts = counts[:1]
	}
	for _, packed := range []bool{false, true} {
		for _, records := range counts {
			s := testSpec(t, "")
			s.Order.Seed, s.Order.Length = r.Uint64(), 1100
			s.Mix.Sources = []spec.Source{
				{Name: "large", Weight: million(3), Dataset: makeSource(t, "large", 3, 100, never)},
				{Name: "tiny", Weight: million(7), Dataset: makeSource(t, "tiny", 1, records, func(int) bool { return packed })},
			}
			weights := []uint64{million(3), million(7)}
			want := referenceOf(t, s, weights, 2, 1100)
			reads := []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadGather, spec.ReadSpool}
			for _, read := range reads {
				if packed && read == spec.ReadGather {
					continue // compressed shards are not gathered
				}
				for _, memory := range []int64{1 << 20, 1 << 26} {
					t.Run(fmt.Sprint(packed, records, read, memory), func(t *testing.T) {
						s := s
						s.Read, s.MemoryBytes, s.SpoolDir = read, memory, t.TempDir()
						d := open(t, s)
						require.Equal(t, want, dealt(t, d, 2, nil, s.Deal))

						// Workers stop at uneven places, and others continue.
						done := []order.Done{{Batch: 1, Consumed: []uint64{uint64(r.IntN(300)), uint64(r.IntN(300)), uint64(r.IntN(300))}}}
						var left [][]byte
						for p, line := range want {
							if uint64(p/3) >= done[0].Consumed[p%3] {
								left = append(left, line)
							}
						}
						deal := s.Deal
						deal.Workers = 1 + uint64(r.IntN(7))
						require.Equal(t, bytes.Join(left, nil), bytes.Join(dealt(t, d, 2, done, deal), nil))
						require.LessOrEqual(t, d.Status().Fetch.HeldBytes, memory+8<<20)
					})
				}
			}
		}
	}
}
