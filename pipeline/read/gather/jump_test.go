package gather

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

func TestJumpDropsGatheredReadsNotYetStarted(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"plain": {Shards: 2, Records: 6000, MaxBytes: 1000}, "checksummed": {Shards: 2, Records: 6000, MaxBytes: 1000, Checksummed: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			seq := readtest.InOrder(d.Index)
			store, m := readtest.HoldReads(t, d)
			g := newGathererOver(t, d, 4<<20, store)
			defer store.Release()
			r := g.Open(seq)
			defer r.Close()
			readtest.AskOn(t, r, 0)
			asked := g.Stats().ReadsInFlight
			require.Greater(t, r.runs[0].end(), uint64(500), "much is read ahead")
			readtest.Ask(t, r, 11_000, 1)
			require.Len(t, r.runs, 2)
			keeps := r.runs[0].end()

			store.Release()
			readtest.LendOne(t, d, r, seq, 11_000)
			m.Lock()
			behind := d.Index.ExtentTable[seq[keeps-1]]
			for _, x := range m.Reads {
				early := x.Object.Path == d.Index.ShardTable[0].Object.Path && x.OffsetBytes < behind.OffsetBytes+behind.SizeBytes
				far := x.OffsetBytes == d.Index.ExtentTable[seq[11_000]].OffsetBytes
				require.True(t, early || far, "no read is made of what was given up alone")
			}
			require.Less(t, int64(len(m.Reads)), asked+1)
			m.Unlock()
			readtest.ReadAll(t, d, r, seq, 7)
			g.Close()
			s := g.Stats()
			require.EqualValues(t, len(m.Reads), s.Reads)
			require.GreaterOrEqual(t, int64(s.ReadsCancelled)+int64(len(m.Reads)), asked+1, "each read was made or cancelled")
			require.Positive(t, s.ReadsCancelled)
		})
	}
}
