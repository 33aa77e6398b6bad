package fetch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
func (p some) of(seq list) (left list) {
	for _, record := range seq {
		if p[record] {
			left = append(left, record)
		}
	}
	return left
}

// parts are some of a dataset's records: one in so many, and whole shards.
func parts(x *plainIndex) map[string]some {
	rng := rand.New(rand.NewPCG(5, 6))
	most, few, shards := make(some, x.Records()), make(some, x.Records()), make(some, x.Records())
	for i := range most {
		most[i], few[i] = rng.IntN(10) > 0, rng.IntN(10) == 0
		shards[i] = x.extents[i].Shard%2 == 1
	}
	return map[string]some{"most": most, "few": few, "every other shard": shards}
}

func TestAPartIsReadAndTheRestIsNeitherWaitedForNorKept(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			d := makeDataset(t, s)
			for which, part := range parts(d.index) {
				for order, seq := range map[string]list{"none": inOrder(d.index), "reservoir": reservoirOrder(3, d.index, 3, 90)} {
					for _, budget := range []int64{1, 300 << 10, 64 << 20} {
						t.Run(fmt.Sprintf("%s/%s/budget=%d", which, order, budget), func(t *testing.T) {
							f, err := newFetcher(d.index, openStorage(t, d.dir), Config{
								MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: d.read, Part: part,
							})
							require.NoError(t, err)
							defer func() { require.NoError(t, f.Close()) }()
							f.cache.released = poison
							readEpochs(t, d, f, part.of(seq), 2)
							if d.read == spec.ReadGather || budget < 64<<20 {
								return
							}
							require.Zero(t, f.slots.missing.Load(), "what is wanted is all there")
							for _, seg := range f.cache.segs {
								require.Zero(t, seg.live.Load(), "nothing is left that waits for its turn")
							}
						})
					}
				}
			}
		})
	}
}

func TestASpoolKnowsWhenAllOfAPartHasGoneOut(t *testing.T) {
	d := makeDataset(t, shape{codec: "zst", shards: 6, records: 110, maxBytes: 900})
	for which, part := range parts(d.index) {
		t.Run(which, func(t *testing.T) {
			c := spoolConfig(t, 64<<20, spoolReservoir)
			c.Part = part
			f := newSpoolingFetcher(t, d, c, openStorage(t, d.dir))
			readEpochs(t, d, f, part.of(reservoirOrder(3, d.index, 3, 90)), 1)
			require.NotEmpty(t, f.spool.shards)
			for _, s := range f.spool.shards {
				require.Zero(t, s.left.Load())
				require.NotZero(t, f.recordsOf(d.index.Shard(s.shard)), "a shard without records of the part")
			}
		})
	}
}

// What a plan says of a part is what is read of it.
func TestForecastsOfAPartAreExact(t *testing.T) {
	for name, s := range map[string]shape{
		"records side by side": {shards: 5, records: 300, maxBytes: 2000},
		"gaps":                 {shards: 3, records: 200, maxBytes: 300, gapBytes: 3000},
		"large records":        {shards: 3, records: 40, maxBytes: 60_000},
	} {
		d := makeDataset(t, s)
		for which, part := range parts(d.index) {
			t.Run(name+", "+which, func(t *testing.T) {
				c, forecast, read := forecastAndRead(t, d, part.of(inOrder(d.index)), Config{
					MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50, Part: part,
				})
				require.Equal(t, forecast, read)
				require.False(t, c.Estimated)
				whole, _, _ := forecastAndRead(t, d, inOrder(d.index), Config{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50})
				require.LessOrEqual(t, c.KeptBytes, whole.KeptBytes)
			})
		}
	}
}

// A checksum at the end of a shard is looked at even where the shard's last
// records are of another part.
func TestDamageBehindTheLastRecordOfAPartShows(t *testing.T) {
	for _, member := range []int{0, 40} {
		d := makeDataset(t, shape{codec: "gz", shards: 1, records: 110, maxBytes: 900, member: member})
		path := filepath.Join(d.dir, d.index.shards[0].Object.Path)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		raw[len(raw)-5] ^= 1 // of the last member's checksum
		require.NoError(t, os.WriteFile(path, raw, 0o644))
		d.index.shards[0].Object = listed(t, d.dir, d.index.shards[0].Object.Path)

		part := make(some, 110)
		for i := range 50 {
			part[i] = true
		}
		f, err := newFetcher(d.index, openStorage(t, d.dir), Config{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Part: part})
		require.NoError(t, err)
		r := f.Open(part.of(inOrder(d.index)))
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
