package pipeline

import "math"

// ChunkRecords counts chunks by their number of records.
type ChunkRecords map[uint64]uint64

// NodeShare is the fraction of all chunks that each of several nodes fetches in an epoch. It
// assumes that node n reads the workers w with w mod nodes = n, that records are assigned in turn
// (--deal interleaved) from a buffer larger than a chunk, and that the number of workers is
// divisible by nodes and by groups.
//
// A worker reads from a single group, w mod groups. So with g the greatest common divisor of nodes
// and groups, a node reads the chunks of every g-th group, which are 1/g of all, and shares them
// with nodes/g − 1 other nodes. A node gets none of a chunk's r records with probability (1 −
// g/nodes)^r, since the buffer scatters them:
//
//	share = mean over chunks of (1 − (1 − g/nodes)^r) / g
//
// It is pure. Without chunks, or with 0 nodes or groups, it is 0.
func NodeShare(nodes, groups uint64, chunks ChunkRecords) float64 {
	if nodes == 0 || groups == 0 {
		return 0
	}
	g := float64(commonDivisor(nodes, groups))
	none := 1 - g/float64(nodes)
	sum, all := 0.0, 0.0
	for records, n := range chunks {
		sum += float64(n) * (1 - math.Pow(none, float64(records)))
		all += float64(n)
	}
	if all == 0 {
		return 0
	}
	return sum / all / g
}

func commonDivisor(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
