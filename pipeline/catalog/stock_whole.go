package catalog

import (
	"context"
	"encoding/json"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// damageOf returns the first damage of a shard, if there is any.
func damageOf(b index.Blob) (reason string, damaged bool) {
	l := b.Losses()
	if len(l.First) == 0 {
		return "", false
	}
	return l.First[0].Error(), true
}

// mostLine is the largest last line that is checked.
const mostLine = 64 << 20

// openEnd returns why a jsonl shard may not be whole, "" if it is: its last line has no newline,
// and is not valid JSON. In a compressed shard the codec detects a missing end. The error is that
// the line can't be read.
func (s *LiveIndex) openEnd(ctx context.Context, c discover.Shard, x index.Shard) (reason string, err error) {
	b := x.Blob
	h := b.Header()
	if s.pass.unpacker.Name() != "jsonl" || x.Codec != 0 || h.Records == 0 {
		return "", nil
	}
	block, place := b.BlockOf(h.Records-1, h.Records)
	at, size := block.Offset(place), block.Size(place)
	if at+size <= h.DecodedBytes || size > mostLine {
		return "", nil // it ends with a newline
	}
	line := make([]byte, h.DecodedBytes-at)
	if err := storage.ReadAt(ctx, s.reads, c.Object, line, at); err != nil || json.Valid(line) {
		return "", err
	}
	return format.Corrupt(int64(h.Records)-1, at, "the last line has no end, and is not JSON").Error(), nil
}
