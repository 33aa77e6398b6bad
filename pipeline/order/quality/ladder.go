package quality

import (
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// step is one candidate of Advise.
type step struct {
	flag, value string
	order       spec.Order
}

// ladders returns the candidates, flag by flag, the smallest change first: a larger buffer
// (memory), smaller chunks (more, smaller reads; no help in compressed shards without entry
// points), more lanes (more positions that are read at a time), and the full permutation (each
// record is a separate read).
func ladders(o spec.Order, total uint64) [][]step {
	if o.Shuffle == spec.ShuffleFull {
		return nil
	}
	var size, chunk, lanes []step
	for n := o.SizeRecords * 2; n < 2*total && n != 0 && len(size) < 8; n *= 2 {
		p := o
		p.SizeRecords = min(n, total)
		size = append(size, step{"--shuffle-size", strconv.FormatUint(p.SizeRecords, 10), p})
	}
	for n := o.ChunkRecords / 2; n >= 8 && len(chunk) < 4; n /= 2 {
		p := o
		p.ChunkRecords = n
		chunk = append(chunk, step{"--chunk-records", strconv.FormatUint(n, 10), p})
	}
	// With only a few records in each lane, a lane no longer shuffles.
	for n := o.Lanes * 2; n <= min(1024, o.SizeRecords/16) && len(lanes) < 4; n *= 2 {
		p := o
		p.Lanes = n
		lanes = append(lanes, step{"--lanes", strconv.FormatUint(n, 10), p})
	}
	full := o
	full.Shuffle = spec.ShuffleFull
	return [][]step{size, chunk, lanes, {{"--shuffle", string(spec.ShuffleFull), full}}}
}
