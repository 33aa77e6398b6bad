package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// nearRecords returns the distance in records up to which a reader counts as reading on.
func (sc *Scanner) nearRecords() uint64 {
	h := &sc.o.Survey.Held
	return window.Near(h.Bytes / int64(max(h.Records, 1)))
}

// layoutWith returns the layout of a piece with the records of a part.
func (sc *Scanner) layoutWith(part chunkmap.Part, number int) (shard int, l chunkmap.Layout) {
	return sc.o.Survey.Places.Of(part).Layout(number, func(shard int) (gapBytes int64, wide chunkmap.Widener) {
		return choose.GapBytes(sc.o.Index.Shard(shard).Codec != nil, sc.sampled, sc.o.Profile), nil
	})
}

// eachRead splits a piece into reads that suit the storage.
func (sc *Scanner) eachRead(l *chunkmap.Layout, read func(chunkmap.Range)) {
	l.Reads(sc.o.Profile.ReadBytes, sc.o.Profile.AlignBytes, read)
}
