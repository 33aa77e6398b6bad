package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// phaseOf computes the phase of a record (order/SELECTION.md) from its ID, with big integers.
func phaseOf(id []byte, seed, n uint64) uint64 {
	key := sha256.Sum256(fmt.Appendf(nil, "lsiofs/1 sample %d 0 0", seed))
	two64 := new(big.Int).Lsh(big.NewInt(1), 64)
	word := func(x *big.Int) *big.Int { return x.Mod(x, two64) }
	z := new(big.Int).SetUint64(binary.LittleEndian.Uint64(key[:]) ^ binary.LittleEndian.Uint64(id[:8]))
	step, _ := new(big.Int).SetString("9E3779B97F4A7C15", 16)
	ordinal := new(big.Int).SetUint64(binary.BigEndian.Uint64(id[8:]))
	word(z.Add(z, step.Mul(step, ordinal.Add(ordinal, big.NewInt(1)))))
	for _, s := range []struct {
		shift  uint
		factor string
	}{{30, "BF58476D1CE4E5B9"}, {27, "94D049BB133111EB"}, {31, "1"}} {
		z.Xor(z, new(big.Int).Rsh(z, s.shift))
		factor, _ := new(big.Int).SetString(s.factor, 16)
		word(z.Mul(z, factor))
	}
	return z.Mul(z, new(big.Int).SetUint64(n)).Rsh(z, 64).Uint64()
}

// epochFiles reads all data and IDs of the rest of an epoch.
func epochFiles(t testing.TB, d *Dataset, epoch uint64, done []order.Done) (lines []string, ids [][]byte) {
	t.Helper()
	set, err := d.Set(context.Background(), epoch, done, d.Spec().Deal)
	require.NoError(t, err)
	for w := range d.Spec().Deal.Workers {
		lines = slices.AppendSeq(lines, strings.Lines(string(readFile(t, set, w, stream.Data, 50_000))))
		ids = slices.AppendSeq(ids, slices.Chunk(readFile(t, set, w, stream.IDs, 50_000), 16))
	}
	require.Len(t, ids, len(lines))
	return lines, ids
}

func sampled(s spec.Spec, n uint64) spec.Spec {
	s.Order.Sample = spec.Subsample{Of: n, Seed: 11}
	return s
}

// Any n epochs in a row contain each record of the split once, whatever the split goes by and
// however they are read; each record has its phase as order/SELECTION.md defines it.
func TestEpochsOfASampleHaveEveryRecordOnceBetweenThem(t *testing.T) {
	const n = 4
	dir := makeLines(t)
	for name, part := range map[string]spec.Split{
		"no split": {}, "by record": split(t, "0..0.7", spec.SplitByRecord), "by shard": split(t, "0.3..1", spec.SplitByShard), "by unit": split(t, "0..0.7", spec.SplitByUnit),
	} {
		t.Run(name, func(t *testing.T) {
			whole := testSpec(t, dir)
			whole.Order.Split = part
			want, _ := epochFiles(t, open(t, whole), 0, nil)
			slices.Sort(want)
			read := map[uint64][]string{} // as first read
			for _, how := range []struct {
				read   spec.Read
				memory int64
			}{{spec.ReadAuto, 1 << 30}, {spec.ReadScan, 1 << 20}, {spec.ReadSpool, 1 << 20}} {
				s := sampled(whole, n)
				s.Read, s.MemoryBytes, s.Epoch = how.read, how.memory, 2
				d := open(t, s)
				var all []string
				for epoch := uint64(2); epoch < 2+n; epoch++ {
					lines, ids := epochFiles(t, d, epoch, nil)
					for _, id := range ids {
						require.Equal(t, epoch%n, phaseOf(id, 11, n))
					}
					records, err := d.EpochRecords(context.Background(), epoch)
					require.NoError(t, err)
					require.EqualValues(t, len(lines), records)
					if read[epoch] == nil {
						read[epoch] = lines
					}
					require.Equal(t, read[epoch], lines, "the same order, however it is read")
					all = append(all, lines...)
				}
				slices.Sort(all)
				require.True(t, slices.Equal(want, all))
				require.EqualValues(t, len(read[2]), d.Records(), "of the epoch that it was opened with")
			}
		})
	}
}

// With any shuffle, groups and deal, a sample can be resumed anywhere in any epoch, with another
// number of workers.
func TestSubsampleResumesMidEpoch(t *testing.T) {
	dir := makeLines(t)
	for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull} {
		for groups := uint64(1); groups <= 3; groups += 2 {
			t.Run(fmt.Sprintf("%s, %d groups", shuffle, groups), func(t *testing.T) {
				s := sampled(testSpec(t, dir), 5)
				s.Order.Shuffle, s.Order.Groups, s.Order.Lanes = shuffle, groups, 6
				if groups > 1 {
					s.Order.Batch, s.Deal.Batch = 4, 4
				}
				d := open(t, s)
				want, _ := epochFiles(t, d, 3, nil)
				require.NotEmpty(t, want)
				consumed := []uint64{80, 76, 79}
				if groups > 1 {
					consumed = []uint64{80, 76, 76}
				}
				set, err := d.Set(t.Context(), 3, nil, s.Deal)
				require.NoError(t, err)
				var got []string
				for w := range s.Deal.Workers {
					lines := slices.Collect(strings.Lines(string(readFile(t, set, w, stream.Data, 50_000))))
					got = append(got, lines[:consumed[w]]...)
				}
				other := s
				other.Deal.Workers, other.Epoch = 7, 3
				rest, _ := epochFiles(t, open(t, other), 3, []order.Done{{Batch: s.Deal.Batch, Consumed: consumed}})
				got = append(got, rest...)
				slices.Sort(want)
				slices.Sort(got)
				require.Equal(t, want, got)
			})
		}
	}
}

// States and layouts stored next to the index belong to one epoch and one sample.
func TestEpochsOfASampleStoreLayoutsOfTheirOwn(t *testing.T) {
	s := testSpec(t, makeLines(t))
	samples := map[string]spec.Subsample{"all": {}, "1/2": {Of: 2}, "1/3": {Of: 3}, "1/3, seed 1": {Of: 3, Seed: 1}}
	sizes := map[string][]int64{}
	epochs := []uint64{0, 1, 2, 3} // with 1/2, epochs 0 and 2 have the same phase; with 1/3, 0 and 3
	for name, sample := range samples {
		s.Order.Sample = sample
		for _, epoch := range epochs {
			sizes[fmt.Sprint(name, epoch)] = sizesOf(t, s, epoch, nil)
		}
	}
	files := len(storedFiles(t, s, layoutEnding))
	require.Equal(t, len(samples)*len(epochs), files)
	for name, sample := range samples {
		s.Order.Sample = sample
		for _, epoch := range epochs {
			require.Equal(t, sizes[fmt.Sprint(name, epoch)], sizesOf(t, s, epoch, nil), "%s, epoch %d", name, epoch)
		}
	}
	require.Len(t, storedFiles(t, s, layoutEnding), files, "they were used again")
}

// With so few records, some epochs have none.
func TestSubsampledEpochMayBeEmpty(t *testing.T) {
	for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadSpool} {
		s := sampled(testSpec(t, makeLines(t)), spec.MaxSampleOf)
		s.Read = read
		d := open(t, s)
		sum := 0
		for epoch := range uint64(30) {
			lines, _ := epochFiles(t, d, epoch, nil)
			n, err := d.EpochRecords(context.Background(), epoch)
			require.NoError(t, err)
			require.EqualValues(t, len(lines), n)
			sum += len(lines)
		}
		require.Less(t, sum, 30)
		f, err := d.Forecast(t.Context(), mustView(t, d, 0), 0, 100)
		require.NoError(t, err)
		require.Equal(t, d.Records(), f.Records)
	}
}

func mustView(t testing.TB, d *Dataset, epoch uint64) *order.View {
	deal := d.Spec().Deal
	deal.Workers = 1
	set, err := d.Set(context.Background(), epoch, nil, deal)
	require.NoError(t, err)
	return set.View()
}

// A plan of another epoch than the one that the dataset was opened with is for that epoch.
func TestPlanIsForRequestedEpoch(t *testing.T) {
	for _, read := range []spec.Read{spec.ReadScan, spec.ReadSpool, spec.ReadAuto} {
		s := sampled(testSpec(t, makeLines(t)), 3)
		s.Read = read
		d := open(t, s)
		for epoch := range uint64(3) {
			v := mustView(t, d, epoch)
			n, err := d.EpochRecords(context.Background(), epoch)
			require.NoError(t, err)
			f, err := d.Forecast(t.Context(), v, 0, n)
			require.NoError(t, err)
			require.Equal(t, n, f.Records)
			size := int64(0)
			lines, _ := epochFiles(t, d, epoch, nil)
			for _, line := range lines {
				size += int64(len(line))
			}
			require.Equal(t, size, f.RecordBytes)
		}
	}
}
