package order

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// This file implements ORDER.md, SELECTION.md and STREAMS.md a second time, with plain lists, for
// the tests to compare with. It uses nothing of the package but the types of its arguments.

func naiveKey(domain string, seed, epoch, index uint64) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "lsiofs/1 %s %d %d %d", domain, seed, epoch, index))
	return binary.LittleEndian.Uint64(sum[:8])
}

func naiveMix(z uint64) uint64 {
	z = z ^ (z >> 30)
	z = z * 0xBF58476D1CE4E5B9
	z = z ^ (z >> 27)
	z = z * 0x94D049BB133111EB
	z = z ^ (z >> 31)
	return z
}

func naiveDraw(k, i uint64) uint64 { return naiveMix(k + (i+1)*0x9E3779B97F4A7C15) }

func naiveBelow(k, i, n uint64) uint64 {
	high, _ := bits.Mul64(naiveDraw(k, i), n)
	return high
}

func naivePermute(a []uint64, k, base uint64) {
	i := base
	for j := len(a) - 1; j >= 1; j-- {
		x := naiveBelow(k, i, uint64(j+1))
		a[j], a[x] = a[x], a[j]
		i++
	}
}

// naiveG returns the global order of chunks with the given numbers of records.
func naiveG(o spec.Order, epoch uint64, chunks []uint64) []uint64 {
	var records []uint64
	lists := make([][]uint64, len(chunks))
	for c, n := range chunks {
		for range n {
			lists[c] = append(lists[c], uint64(len(records)))
			records = append(records, uint64(len(records)))
		}
	}
	switch o.Shuffle {
	case spec.ShuffleNone:
		return records
	case spec.ShuffleFull:
		for i := range records {
			records[i] = naiveFull(o.Seed, epoch, uint64(len(records)), uint64(i))
		}
		return records
	}
	return naiveLanes(o, epoch, lists, uint64(len(records)))
}

func naiveFull(seed, epoch, total, x uint64) uint64 {
	b := 0
	for n := total - 1; n > 0; n /= 2 {
		b++
	}
	b = max(b, 2)
	b += b % 2
	h := uint(b / 2)
	mask := uint64(1)<<h - 1
	for {
		l, r := x>>h, x&mask
		for round := range uint64(6) {
			l, r = r, l^(naiveMix(naiveKey("full", seed, epoch, round)+r)&mask)
		}
		x = l<<h | r
		if x < total {
			return x
		}
	}
}

func naiveLanes(o spec.Order, epoch uint64, lists [][]uint64, total uint64) []uint64 {
	// 1
	chunks := make([]uint64, len(lists))
	for c := range chunks {
		chunks[c] = uint64(c)
	}
	naivePermute(chunks, naiveKey("chunks", o.Seed, epoch, 0), 0)
	var s []uint64
	for _, c := range chunks {
		s = append(s, lists[c]...)
	}
	// 2
	L, K, B := o.Lanes, o.Groups, o.Batch
	if o.SizeRecords >= total {
		L, K = 1, 1
	}
	M := L / K
	turn := func(g, r uint64) uint64 { return naiveBelow(naiveKey("turn", o.Seed, epoch, g), r, M) }
	// 3 and 4
	sizes := make([]uint64, K)
	for p := range total {
		sizes[(p/B)%K]++
	}
	R := (o.SizeRecords + L - 1) / L
	if R == 0 {
		R = 1
	}
	lanes := make([][][]uint64, K)
	for g := range K {
		n := sizes[g]
		base, extra := n/M, n%M
		for m := range M {
			size := base
			if (m+M-turn(g, base))%M < extra {
				size++
			}
			lane := s[:size:size]
			s = s[size:]
			k := naiveKey("lane", o.Seed, epoch, g*M+m)
			if o.Shuffle == spec.ShuffleReservoir {
				lane = naiveReservoir(lane, k, R)
			} else {
				lane = naiveBlocks(lane, k, R)
			}
			lanes[g] = append(lanes[g], lane)
		}
	}
	// 5
	var G []uint64
	for p := range total {
		g := (p / B) % K
		q := (p/(B*K))*B + p%B
		r := q / M
		G = append(G, lanes[g][(q+turn(g, r))%M][r])
	}
	return G
}

func naiveReservoir(lane []uint64, k, R uint64) []uint64 {
	first := min(R, uint64(len(lane)))
	slots := append([]uint64(nil), lane[:first]...)
	more := lane[first:]
	var out []uint64
	for i := uint64(0); len(slots) > 0; i++ {
		j := naiveBelow(k, i, uint64(len(slots)))
		out = append(out, slots[j])
		if len(more) > 0 {
			slots[j] = more[0]
			more = more[1:]
		} else {
			slots[j] = slots[len(slots)-1]
			slots = slots[:len(slots)-1]
		}
	}
	return out
}

func naiveBlocks(lane []uint64, k, R uint64) []uint64 {
	var out []uint64
	for b := uint64(0); b < uint64(len(lane)); b += R {
		block := append([]uint64(nil), lane[b:min(b+R, uint64(len(lane)))]...)
		naivePermute(block, k, b)
		out = append(out, block...)
	}
	return out
}

// naiveDeal deals a list and returns each worker's positions in it.
func naiveDeal(n, W, B uint64, dealing spec.Dealing) [][]uint64 {
	workers := make([][]uint64, W)
	if dealing == spec.DealContiguous {
		p := uint64(0)
		for w := range W {
			size := n / W
			if w < n%W {
				size++
			}
			for range size {
				workers[w] = append(workers[w], p)
				p++
			}
		}
		return workers
	}
	for p := range n {
		w := (p / B) % W
		workers[w] = append(workers[w], p)
	}
	return workers
}

// naiveResume removes the consumed records from a list.
func naiveResume(list []uint64, d Done) []uint64 {
	taken := make(map[uint64]bool)
	for w, places := range naiveDeal(uint64(len(list)), uint64(len(d.Consumed)), d.Batch, d.Dealing) {
		for _, p := range places[:d.Consumed[w]] {
			taken[p] = true
		}
	}
	var left []uint64
	for p, record := range list {
		if !taken[uint64(p)] {
			left = append(left, record)
		}
	}
	return left
}

// naiveTail applies the tail rule to what is left of G.
func naiveTail(left, G []uint64, d spec.Assignment) []uint64 {
	round := d.Workers
	if d.Dealing != spec.DealContiguous {
		round *= d.Batch
	}
	out := append([]uint64(nil), left...)
	switch d.Tail {
	case spec.TailDrop:
		for uint64(len(out))%round != 0 {
			out = out[:len(out)-1]
		}
	case spec.TailPad:
		for i := 0; uint64(len(out))%round != 0; i++ {
			out = append(out, G[i%len(G)])
		}
	}
	return out
}

// naiveShard is a shard with some entry points; its first record always is one.
type naiveShard struct {
	path    string
	entries []bool // by record
}

// naiveSplit returns the numbers of the records that a split selects.
func naiveSplit(s spec.Split, shards []naiveShard) []uint64 {
	var left []uint64
	number := uint64(0)
	for _, shard := range shards {
		inPart := naiveInPart(shard.path, s.Seed, s.Part)
		unit := uint64(0) // ordinal of its first record
		for ordinal, entry := range shard.entries {
			switch {
			case s.By == spec.SplitByRecord, s.By == spec.SplitByUnit && entry:
				unit = uint64(ordinal)
			}
			if inPart(unit) {
				left = append(left, number)
			}
			number++
		}
	}
	return left
}

// naiveInPart returns a function that reports whether a shard's unit is in a part, given the
// ordinal of the unit's first record.
func naiveInPart(path string, seed uint64, part spec.Part) func(ordinal uint64) bool {
	id := sha256.Sum256([]byte("lsiofs/1 shard " + path))
	k := naiveKey("split", seed, 0, 0) ^ binary.LittleEndian.Uint64(id[:8])
	floor := func(billionths uint32) *big.Int {
		x := new(big.Int).Lsh(big.NewInt(int64(billionths)), 64)
		return x.Div(x, big.NewInt(1_000_000_000))
	}
	from, to, u := floor(part.From), floor(part.To), new(big.Int)
	return func(ordinal uint64) bool {
		u.SetUint64(naiveDraw(k, ordinal))
		return from.Cmp(u) <= 0 && u.Cmp(to) < 0
	}
}

// naiveSampled returns the records that a split and the sample of an epoch select.
func naiveSampled(o spec.Order, epoch uint64, shards []naiveShard) []uint64 {
	if o.Split == (spec.Split{}) {
		o.Split = spec.Split{Part: spec.Part{To: 1_000_000_000}, By: spec.SplitByRecord}
	}
	left := naiveSplit(o.Split, shards)
	if o.Sample.Of == 0 {
		return left
	}
	phases := make([]func(uint64) uint64, len(shards))
	for i, shard := range shards {
		phases[i] = naivePhase(shard.path, o.Sample.Seed, o.Sample.Of)
	}
	sampled := []uint64{}
	for _, record := range left {
		first := uint64(0)
		for i, shard := range shards {
			if n := uint64(len(shard.entries)); record >= first+n {
				first += n
				continue
			}
			if phases[i](record-first) == epoch%o.Sample.Of {
				sampled = append(sampled, record)
			}
			break
		}
	}
	return sampled
}

// naivePhase returns the phase of a shard's record, given its ordinal.
func naivePhase(path string, seed, n uint64) func(ordinal uint64) uint64 {
	id := sha256.Sum256([]byte("lsiofs/1 shard " + path))
	k := naiveKey("sample", seed, 0, 0) ^ binary.LittleEndian.Uint64(id[:8])
	times, product := new(big.Int).SetUint64(n), new(big.Int)
	return func(ordinal uint64) uint64 {
		product.Mul(product.SetUint64(naiveDraw(k, ordinal)), times)
		return product.Rsh(product, 64).Uint64()
	}
}

// naivePartG returns the order of the selected records: chunks are cut on all records, then the
// others are removed, and empty chunks are dropped.
func naivePartG(o spec.Order, epoch uint64, chunks, left []uint64) []uint64 {
	var sizes []uint64
	first := uint64(0)
	for _, n := range chunks {
		size := uint64(0)
		for _, record := range left {
			if record >= first && record < first+n {
				size++
			}
		}
		if size > 0 {
			sizes = append(sizes, size)
		}
		first += n
	}
	g := naiveG(o, epoch, sizes)
	for i, rank := range g {
		g[i] = left[rank]
	}
	return g
}
