package read

import (
	"fmt"
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

func TestRecordsOfCompressedShardsMayOverlap(t *testing.T) {
	for _, c := range []struct{ record, stride, member int }{
		{96, 64, 1 << 30}, {96, 64, 1000}, {5000, 10, 1 << 30}, {5000, 10, 3000}, {20_000, 1, 1 << 30}, {64, 96, 500},
	} {
		t.Run(fmt.Sprintf("record=%d/stride=%d/member=%d", c.record, c.stride, c.member), func(t *testing.T) {
			d := readtest.MakeOverlapping(t, 3, 300, c.record, c.stride, c.member)
			for _, budget := range []int64{1, 1 << 20, 1 << 30} {
				for _, seq := range []readtest.List{readtest.InOrder(d.Index), readtest.RandomOrder(1, d.Index)[:200], readtest.ReservoirOrder(2, d.Index, 3, 60)} {
					f := newTestFetcher(t, d, budget)
					seq := seqFor(seq, budget)
					r := f.Open(seq)
					readtest.ReadAll(t, d, r, seq, 17)
					r.Close()
				}
			}
		})
	}
}
