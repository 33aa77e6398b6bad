package quality

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Mix is how well a sequence of records mixes shards.
type Mix struct {
	Estimate
	// Neighbours is the fraction of records that follow a record of the same shard. Independent is
	// what it would be if every record were drawn independently, Σ q(s)².
	Neighbours  float64 `json:"neighbours_of_one_shard"`
	Independent float64 `json:"neighbours_if_independent"`
}

// Resolution is how closely Survey looks. The zero value means all records and no picture.
type Resolution struct {
	// LimitRecords bounds the records that are measured; 0 means all. In a longer sequence, one
	// range per column is measured, at equal distances.
	LimitRecords uint64
	// Columns and Rows bound the size of the picture; with Columns 0 there is none.
	Columns, Rows int
}

// stretches returns the number of ranges that are measured if total exceeds the limit, and the
// maximum number of records in each.
func (r Resolution) stretches(total uint64) (n, records uint64) {
	n = uint64(max(r.Columns, 1))
	return n, max(BatchRecords, r.LimitRecords/n/BatchRecords*BatchRecords)
}

// Picture shows which shards the records of a sequence come from, over its length.
type Picture struct {
	// Columns are equal parts of the sequence. Rows are groups of adjacent shards in dataset order,
	// without empty shards.
	Columns, Rows int
	// Density is how often records of a row's shards occur in a column, row by row, as a multiple
	// of their share: independent sampling has a mean of 1.
	Density []float32
	// Expected is how many records of a column belong to a row in an even mix, averaged over rows.
	// Random variation of each count is about its square root.
	Expected float64
	Shards   int // number of shards with records
}

// cellRecords is the minimum average number of records per cell of a picture, if there are that
// many: with fewer, only chance would be visible.
const cellRecords = 8

// Survey measures a sequence, at about 40 ns per record in addition to the time of next.
// shardStarts are the first records of the shards, ascending, followed by the number of all
// records. part is the set that a split selects; the sequence must hold all of it. The picture is
// nil if r requests none. When goOn returns false, Survey stops and returns what it has so far.
func Survey(next Source, shardStarts []uint64, part *order.Part, r Resolution, goOn func() bool) (Mix, *Picture) {
	m := newMeter(shardStarts, part)
	shards := len(m.starts) - 1
	total := part.Count(0, m.starts[shards])
	var mix Mix
	for s := range shards {
		q := float64(part.Count(m.starts[s], m.starts[s+1])) / float64(max(total, 1))
		mix.Independent += q * q
	}
	n, length := uint64(1), total
	whole := r.LimitRecords == 0 || total <= r.LimitRecords
	if !whole {
		n, length = r.stretches(total)
	}
	p := newPainter(m, part, r, total, n*length)
	batch := make([]uint64, BatchRecords)
	var pairs, same uint64
	for c := range n {
		at := c * total / n
		end := min(at+length, total)
		for last := -1; at < end && goOn(); {
			got := next(at, batch[:min(BatchRecords, end-at)])
			for i, record := range batch[:got] {
				s := m.shardOf(record)
				if last >= 0 {
					pairs++
				}
				if s == last {
					same++
				}
				last = s
				p.add(at+uint64(i), s)
			}
			at += uint64(got)
			if got < BatchRecords {
				break
			}
			if m.degrees > 0 {
				m.add(batch)
			}
		}
	}
	if pairs > 0 {
		mix.Neighbours = float64(same) / float64(pairs)
	}
	mix.Estimate = m.estimate(whole)
	return mix, p.picture()
}

// painter counts the records in each cell of a picture. A nil painter counts nothing.
type painter struct {
	columns, rows uint64
	shards, total uint64
	counts        []uint32 // row by row
	shares        []float64
}

// newPainter returns a painter for looked of total records, of the shards of m.
func newPainter(m *meter, part *order.Part, r Resolution, total, looked uint64) *painter {
	shards := uint64(len(m.starts) - 1)
	if r.Columns == 0 || r.Rows == 0 || total == 0 {
		return nil
	}
	p := &painter{shards: shards, total: total}
	p.rows = max(1, min(uint64(r.Rows), shards, uint64(math.Sqrt(float64(looked)/cellRecords))))
	p.columns = max(1, min(uint64(r.Columns), looked/(p.rows*cellRecords)))
	p.counts = make([]uint32, p.columns*p.rows)
	p.shares = make([]float64, p.rows)
	for s := range shards {
		p.shares[p.row(int(s))] += float64(part.Count(m.starts[s], m.starts[s+1])) / float64(total)
	}
	return p
}

func (p *painter) row(shard int) uint64 { return uint64(shard) * p.rows / p.shards }

func (p *painter) add(position uint64, shard int) {
	if p != nil {
		p.counts[p.row(shard)*p.columns+position*p.columns/p.total]++
	}
}

// picture divides the counts by their expected values in an even mix.
func (p *painter) picture() *Picture {
	if p == nil {
		return nil
	}
	pic := &Picture{Columns: int(p.columns), Rows: int(p.rows), Density: make([]float32, len(p.counts)), Shards: int(p.shards)}
	for c := range p.columns {
		records := 0.0
		for r := range p.rows {
			records += float64(p.counts[r*p.columns+c])
		}
		for r, share := range p.shares {
			if i := uint64(r)*p.columns + c; share*records > 0 {
				pic.Density[i] = float32(float64(p.counts[i]) / (share * records))
			}
		}
		pic.Expected += records / float64(p.rows*p.columns)
	}
	return pic
}

// Compared is a shuffle and how well it mixes.
type Compared struct {
	Shuffle string `json:"shuffle"`
	Mix
	Picture *Picture `json:"-"` // nil if not requested
}

// Compare surveys an epoch and two other shuffles of the same records: shards in random order
// through a buffer, and a full permutation. o and epoch are the arguments that e was made with.
func Compare(e *order.Epoch, o spec.Order, epoch uint64, s Subject, r Resolution, goOn func() bool) ([]Compared, error) {
	list := []Compared{survey("this order", Walk(e), s, r, goOn)}
	list = append(list, survey(fmt.Sprintf("shards at random, a buffer of %d", o.SizeRecords),
		ShardsAndBuffer(s.ShardStarts, s.Part, o.SizeRecords, o.Seed), s, r, goOn))
	o.Shuffle = spec.ShuffleFull
	full, err := order.NewEpoch(o, epoch, s.ChunkStarts(o.ChunkBytes, o.ChunkRecords), s.Part)
	if err != nil {
		return nil, err
	}
	return append(list, survey("full permutation", Walk(full), s, r, goOn)), nil
}

func survey(name string, next Source, s Subject, r Resolution, goOn func() bool) Compared {
	mix, picture := Survey(next, s.ShardStarts, s.Part, r, goOn)
	return Compared{name, mix, picture}
}

// ShardsAndBuffer is the shuffle of loaders that shuffle shards and samples separately, as
// webdataset and tf.data commonly do. Shards are read in a random order, one after the other, into
// a buffer of size records; each incoming record replaces a random one, which is delivered. Records
// outside the part are skipped. Positions must ascend from call to call; records in between are
// stepped over.
func ShardsAndBuffer(shardStarts []uint64, part *order.Part, size, seed uint64) Source {
	r := rand.New(rand.NewPCG(seed, 0))
	shards := r.Perm(len(shardStarts) - 1)
	var at, end uint64 // in the current shard
	source := func() (uint64, bool) {
		for {
			for at == end {
				if len(shards) == 0 {
					return 0, false
				}
				at, end = shardStarts[shards[0]], shardStarts[shards[0]+1]
				shards = shards[1:]
			}
			at++
			if part.Has(at - 1) {
				return at - 1, true
			}
		}
	}
	var buffer []uint64
	for uint64(len(buffer)) < max(size, 1) {
		record, ok := source()
		if !ok {
			break
		}
		buffer = append(buffer, record)
	}
	draw := func() (uint64, bool) {
		if len(buffer) == 0 {
			return 0, false
		}
		k := r.IntN(len(buffer))
		drawn := buffer[k]
		record, ok := source()
		if !ok {
			last := len(buffer) - 1
			record, buffer = buffer[last], buffer[:last]
			if k == last {
				return drawn, true
			}
		}
		buffer[k] = record
		return drawn, true
	}
	position := uint64(0)
	return func(k uint64, dst []uint64) int {
		for ; position < k; position++ {
			if _, ok := draw(); !ok {
				return 0
			}
		}
		for i := range dst {
			record, ok := draw()
			if !ok {
				return i
			}
			dst[i] = record
			position++
		}
		return len(dst)
	}
}
