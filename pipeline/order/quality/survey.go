package quality

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// Mix is how well a sequence of records mixes shards.
type Mix struct {
	Estimate
	// Neighbours is the share of records that follow a record of the same shard.
	// Independent is what it would be if every record were drawn independently, Σ q(s)².
	Neighbours  float64 `json:"neighbours_of_one_shard"`
	Independent float64 `json:"neighbours_if_independent"`
}

// Resolution says how closely Survey looks. The zero value means all records and no
// picture.
type Resolution struct {
	// LimitRecords bounds the records that are looked at; 0 means all. Of a longer
	// sequence, one stretch a column is looked at, at equal distances.
	LimitRecords uint64
	// Columns and Rows bound the picture's size; with Columns 0 there is none.
	Columns, Rows int
}

// stretches are how many there are, and how many records each has at most, where
// not all of total records are looked at.
func (r Resolution) stretches(total uint64) (n, records uint64) {
	n = uint64(max(r.Columns, 1))
	return n, max(BatchRecords, r.LimitRecords/n/BatchRecords*BatchRecords)
}

// Picture shows which shards the records of a sequence come from, over its length.
type Picture struct {
	// Columns are equal parts of the sequence. Rows are groups of neighbouring shards in
	// dataset order; shards without records are left out.
	Columns, Rows int
	// Density says how often records of a row's shards come in a column, row by row, as
	// a multiple of their share: independent sampling gives a mean of 1.
	Density []float32
	// Expected is how many records of a column belong to a row in an even mix, averaged
	// over rows. Chance moves each number by about its square root.
	Expected float64
	Shards   int // that have records
}

// cellRecords is how many records a cell of a picture has on average at least,
// where there are that many: of fewer, chance is all that is seen.
const cellRecords = 8

// Survey measures a sequence, at about 40 ns a record besides the time of next.
// shardStarts are the first records of the shards, ascending, followed by the number of
// all records. part is what a split selects; the sequence must hold all of it. The
// picture is nil if r asks for none. When goOn returns false, Survey stops and returns
// what it has.
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

// painter counts the records of each cell of a picture. nil counts nothing.
type painter struct {
	columns, rows uint64
	shards, total uint64
	counts        []uint32 // row by row
	shares        []float64
}

// newPainter makes cells for looked of total records; a meter knows the shards.
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

// picture divides the counts by what they would be if all were even.
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
