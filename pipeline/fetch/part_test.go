package fetch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// some is the part of the records that are true.
type some []bool

func (p some) Has(record uint64) bool { return p[record] }

func (p some) Count(from, to uint64) (n uint64) {
	for _, has := range p[from:to] {
		if has {
			n++
		}
	}
	return n
}

// of takes the records of other parts out of a sequence.
func (p some) of(seq fetchtest.List) (left fetchtest.List) {
	for _, record := range seq {
		if p[record] {
			left = append(left, record)
		}
	}
	return left
}

// parts are some of a dataset's records: one in so many, and whole shards.
func parts(x *fetchtest.Index) map[string]some {
	rng := rand.New(rand.NewPCG(5, 6))
	most, few, shards := make(some, x.Records()), make(some, x.Records()), make(some, x.Records())
	for i := range most {
		most[i], few[i] = rng.IntN(10) > 0, rng.IntN(10) == 0
		shards[i] = x.ExtentTable[i].Shard%2 == 1
	}
	return map[string]some{"most": most, "few": few, "every other shard": shards}
}

func TestAPartIsReadAndTheRestIsNeitherWaitedForNorKept(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			d := fetchtest.Make(t, s)
			for which, part := range parts(d.Index) {
				for order, seq := range map[string]fetchtest.List{"none": fetchtest.InOrder(d.Index), "reservoir": fetchtest.ReservoirOrder(3, d.Index, 3, 90)} {
					for _, budget := range []int64{1, 300 << 10, 64 << 20} {
						t.Run(fmt.Sprintf("%s/%s/budget=%d", which, order, budget), func(t *testing.T) {
							f, err := newFetcher(d.Index, fetchtest.OpenStorage(t, d.Dir), Config{
								MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: d.Read, Part: part,
							})
							require.NoError(t, err)
							defer func() { require.NoError(t, f.Close()) }()
							f.cache.released = fetchtest.Poison
							readEpochs(t, d, f, part.of(seq), 2)
							if d.Read == spec.ReadGather || budget < 64<<20 {
								return
							}
							require.Zero(t, f.slots.missing.Load(), "what is wanted is all there")
							for _, seg := range f.cache.segs {
								require.Zero(t, seg.Live.Load(), "nothing is left that waits for its turn")
							}
						})
					}
				}
			}
		})
	}
}

func TestASpoolKnowsWhenAllOfAPartHasGoneOut(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Codec: "zst", Shards: 6, Records: 110, MaxBytes: 900})
	for which, part := range parts(d.Index) {
		t.Run(which, func(t *testing.T) {
			c := spoolConfig(t, 64<<20, spoolReservoir)
			c.Part = part
			f := newSpoolingFetcher(t, d, c, fetchtest.OpenStorage(t, d.Dir))
			readEpochs(t, d, f, part.of(fetchtest.ReservoirOrder(3, d.Index, 3, 90)), 1)
			require.NotEmpty(t, f.spool.shards)
			for _, s := range f.spool.shards {
				require.Zero(t, s.left.Load())
				require.NotZero(t, f.recordsOf(d.Index.Shard(s.shard)), "a shard without records of the part")
			}
		})
	}
}

// What a plan says of a part is what is read of it.
func TestForecastsOfAPartAreExact(t *testing.T) {
	for name, s := range map[string]fetchtest.Shape{
		"records side by side": {Shards: 5, Records: 300, MaxBytes: 2000},
		"gaps":                 {Shards: 3, Records: 200, MaxBytes: 300, GapBytes: 3000},
		"large records":        {Shards: 3, Records: 40, MaxBytes: 60_000},
	} {
		d := fetchtest.Make(t, s)
		for which, part := range parts(d.Index) {
			t.Run(name+", "+which, func(t *testing.T) {
				c, forecast, read := forecastAndRead(t, d, part.of(fetchtest.InOrder(d.Index)), Config{
					MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50, Part: part,
				})
				require.Equal(t, forecast, read)
				require.False(t, c.Estimated)
				whole, _, _ := forecastAndRead(t, d, fetchtest.InOrder(d.Index), Config{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50})
				require.LessOrEqual(t, c.KeptBytes, whole.KeptBytes)
			})
		}
	}
}

// A checksum at the end of a shard is looked at even where the shard's last
// records are of another part.
func TestDamageBehindTheLastRecordOfAPartShows(t *testing.T) {
	for _, member := range []int{0, 40} {
		d := fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 1, Records: 110, MaxBytes: 900, Member: member})
		path := filepath.Join(d.Dir, d.Index.ShardTable[0].Object.Path)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		raw[len(raw)-5] ^= 1 // of the last member's checksum
		require.NoError(t, os.WriteFile(path, raw, 0o644))
		d.Index.ShardTable[0].Object = fetchtest.Listed(t, d.Dir, d.Index.ShardTable[0].Object.Path)

		part := make(some, 110)
		for i := range 50 {
			part[i] = true
		}
		f, err := newFetcher(d.Index, fetchtest.OpenStorage(t, d.Dir), Config{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Part: part})
		require.NoError(t, err)
		r := f.Open(part.of(fetchtest.InOrder(d.Index)))
		var l Loan
		for k := 0; k < 50 && err == nil; k += len(l.Records) {
			l.Release()
			err = r.Lend(t.Context(), uint64(k), 50, &l)
		}
		l.Release()
		var corrupt *unpack.CorruptError
		require.ErrorAs(t, err, &corrupt)
		r.Close()
		require.NoError(t, f.Close())
	}
}
