package verify

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// OrderConfig configures Order.
type OrderConfig struct {
	Order spec.Order
	Epoch uint64
	Deal  spec.Assignment
	// Subject is what the order depends on in the dataset.
	Subject quality.Subject
	// Predicted is the χ²/df that inspecting the dataset reports.
	Predicted float64
	// Step, if set, is called with each claim before it is checked.
	Step func(claim string)
}

// Claim is a guarantee of an order.
type Claim struct {
	Name string `json:"claim"`
	// Problem describes the first violation; "" if the claim holds.
	Problem string `json:"problem,omitempty"`
	// Records is the number of record numbers compared.
	Records uint64 `json:"records"`
}

// Mixing is a row of the comparison of shuffles.
type Mixing struct {
	quality.Compared
	// Predicted is the χ²/df that inspection reports; 0 if none.
	Predicted float64 `json:"chi2_df_predicted,omitempty"`
}

// OrderReport is the result of Order.
type OrderReport struct {
	Claims []Claim  `json:"claims"`
	Mixing []Mixing `json:"mixing"`
}

// Holds reports whether all claims hold.
func (r OrderReport) Holds() bool {
	for _, c := range r.Claims {
		if c.Problem != "" {
			return false
		}
	}
	return true
}

// resumes is the number of positions at which an epoch is resumed.
const resumes = 3

// Order walks the order of an epoch and checks it against its definition:
//
//   - Every record occurs once.
//   - The workers partition the records, and each record is at the position that the dealing
//     rule assigns to it.
//   - After some workers took some records each, the remainder of the order is complete,
//     however it is assigned again.
//
// Then it measures how well the order mixes shards, and compares it with a buffer over shards in
// random order and with a full permutation.
//
// It takes one bit per record, and about 0.2 µs per record and claim. It fails if ctx ends or if
// the order is not valid.
func Order(ctx context.Context, c OrderConfig) (OrderReport, error) {
	p := &proof{ctx: ctx, config: c, starts: c.Subject.ChunkStarts(c.Order.ChunkBytes, c.Order.ChunkRecords)}
	if c.Step == nil {
		p.config.Step = func(string) {}
	}
	e, err := order.NewEpoch(c.Order, c.Epoch, p.starts, c.Subject.Part)
	if err != nil {
		return OrderReport{}, err
	}
	var r OrderReport
	p.config.Step(permutationClaim)
	r.Claims = append(r.Claims, permutation(p.records(), c.Subject.Part, func(visit func(position, record uint64) bool) { p.walk(e, visit) }))
	partition, err := p.partition(e)
	if err != nil {
		return OrderReport{}, err
	}
	r.Claims = append(r.Claims, partition)
	draw := rand.New(rand.NewPCG(c.Order.Seed, c.Epoch))
	for range resumes {
		claim, err := p.resume(e, draw)
		if err != nil {
			return OrderReport{}, err
		}
		r.Claims = append(r.Claims, claim)
	}
	if r.Mixing, err = p.mixing(e); err != nil {
		return OrderReport{}, err
	}
	return r, ctx.Err()
}

// proof is one run of Order.
type proof struct {
	ctx    context.Context
	config OrderConfig
	starts []uint64
}

// goOn reports whether the context is still alive.
func (p *proof) goOn() bool { return p.ctx.Err() == nil }

// stepRecords is how many records are walked between two checks of the context.
const stepRecords = 4096

// walk calls visit with each position of G and its record, until it returns false.
func (p *proof) walk(e *order.Epoch, visit func(position, record uint64) bool) {
	c := e.Cursor(0)
	buffer := make([]uint64, stepRecords)
	for position := uint64(0); p.goOn(); {
		n := c.Next(buffer)
		for _, record := range buffer[:n] {
			if !visit(position, record) {
				return
			}
			position++
		}
		if n < len(buffer) {
			return
		}
	}
}

const permutationClaim = "every record occurs exactly once in the epoch"

// records returns the number of records of the dataset, whatever a split selects.
func (p *proof) records() uint64 {
	starts := p.config.Subject.ShardStarts
	return starts[len(starts)-1]
}

// permutation checks the claim that G has every record of the part once, out of total records of
// the dataset. walk walks G.
func permutation(total uint64, part *order.Part, walk func(visit func(position, record uint64) bool)) Claim {
	c := Claim{Name: permutationClaim}
	left := part.Count(0, total)
	seen := make([]uint64, (total+63)/64)
	walk(func(position, record uint64) bool {
		switch {
		case record >= total:
			c.Problem = fmt.Sprintf("position %d has record %d of %d", position, record, total)
		case !part.Has(record):
			c.Problem = fmt.Sprintf("position %d has record %d, which belongs to another part of the split", position, record)
		case seen[record/64]>>(record%64)&1 == 1:
			c.Problem = fmt.Sprintf("position %d has record %d, which occurred before", position, record)
		default:
			seen[record/64] |= 1 << (record % 64)
			c.Records++
			return true
		}
		return false
	})
	// The right number, and none twice: so all.
	if c.Problem == "" && c.Records != left {
		c.Problem = fmt.Sprintf("only %d of %d records occurred", c.Records, left)
	}
	return c
}

// partition checks the claim that the streams of the deal's workers are G, dealt by the rule.
func (p *proof) partition(e *order.Epoch) (Claim, error) {
	deal := p.config.Deal
	c := Claim{Name: fmt.Sprintf("the epoch is divided among %s, %s", workersText(deal.Workers), dealText(deal))}
	p.config.Step(c.Name)
	deal.Tail = spec.TailKeep // the other tails drop or repeat records
	v, err := order.NewView(e, nil, deal)
	if err != nil {
		return c, err
	}
	s := newStreams(v, deal, e.Len())
	p.walk(e, func(_, record uint64) bool {
		c.Problem = s.expect(record)
		c.Records++
		return c.Problem == ""
	})
	if c.Problem == "" && p.goOn() {
		c.Problem = s.end()
	}
	return c, nil
}

// resume checks the claim that after some workers took some records each, others continue with the
// rest.
func (p *proof) resume(e *order.Epoch, draw *rand.Rand) (Claim, error) {
	batch := p.config.Order.Batch
	before := spec.Assignment{Workers: 1 + draw.Uint64N(8), Batch: batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	after := spec.Assignment{Workers: 1 + draw.Uint64N(8), Batch: batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	if p.config.Order.Groups == 1 {
		before.Batch, after.Batch = 1+draw.Uint64N(4), 1+draw.Uint64N(4)
	}
	whole, err := order.NewView(e, nil, before)
	if err != nil {
		return Claim{}, err
	}
	done := order.Done{Batch: before.Batch, Consumed: make([]uint64, before.Workers)}
	left := e.Len()
	for w := range before.Workers {
		done.Consumed[w] = draw.Uint64N(whole.Count(w) + 1)
		left -= done.Consumed[w]
	}
	c := Claim{Name: fmt.Sprintf("after %s took %d, the rest is divided among %s", workersText(before.Workers), done.Consumed, workersText(after.Workers))}
	p.config.Step(c.Name)
	v, err := order.NewView(e, []order.Done{done}, after)
	if err != nil {
		return c, err
	}
	s := newStreams(v, after, left)
	p.walk(e, func(position, record uint64) bool {
		w, k := owner(position, before)
		if k < done.Consumed[w] {
			return true
		}
		c.Problem = s.expect(record)
		c.Records++
		return c.Problem == ""
	})
	if c.Problem == "" && p.goOn() {
		c.Problem = s.end()
	}
	return c, nil
}

// owner implements the rule of pipeline/order/STREAMS.md: position j belongs to worker (j div B)
// mod W.
func owner(j uint64, d spec.Assignment) (w, k uint64) {
	return j / d.Batch % d.Workers, j/d.Batch/d.Workers*d.Batch + j%d.Batch
}

// ownerOf is owner for both ways of dealing n positions: contiguous ones go to the workers in runs,
// of which the first n mod W are one longer.
func ownerOf(j, n uint64, d spec.Assignment) (w, k uint64) {
	if d.Dealing != spec.DealContiguous {
		return owner(j, d)
	}
	size, longer := n/d.Workers, n%d.Workers
	if j < longer*(size+1) {
		return j / (size + 1), j % (size + 1)
	}
	j -= longer * (size + 1)
	return longer + j/size, j % size
}

// streams are the streams of a view's workers, read in parallel.
type streams struct {
	view  view
	deal  spec.Assignment
	total uint64
	next  uint64 // index of the next expected record
	each  []stream
}

// view is the part of order.View that is checked.
type view interface {
	Records(w, k uint64, dst []uint64) int
	Count(w uint64) uint64
}

// stream is a window of one worker's stream.
type stream struct {
	buffer []uint64
	held   int
	first  uint64 // index of buffer[0] in the stream
}

func newStreams(v view, d spec.Assignment, total uint64) *streams {
	s := &streams{view: v, deal: d, total: total, each: make([]stream, d.Workers)}
	for i := range s.each {
		s.each[i].buffer = make([]uint64, max(16, min(stepRecords, 1<<20/d.Workers)))
	}
	return s
}

// expect checks the record at the next index, and returns the problem, or "".
func (s *streams) expect(record uint64) string {
	if s.next >= s.total {
		return fmt.Sprintf("more than the %d remaining records", s.total)
	}
	w, k := ownerOf(s.next, s.total, s.deal)
	s.next++
	t := &s.each[w]
	if k < t.first || k-t.first >= uint64(t.held) {
		t.first, t.held = k, s.view.Records(w, k, t.buffer)
	}
	switch {
	case t.held == 0:
		return fmt.Sprintf("worker %d lacks record %d, which is record %d of the dataset", w, k, record)
	case t.buffer[k-t.first] != record:
		return fmt.Sprintf("record %d of worker %d is record %d of the dataset, not %d", k, w, t.buffer[k-t.first], record)
	}
	return ""
}

// end checks the ends of the streams, and returns the problem, or "".
func (s *streams) end() string {
	if s.next != s.total {
		return fmt.Sprintf("expected %d records, got %d", s.total, s.next)
	}
	sum := uint64(0)
	for w := range s.deal.Workers {
		sum += s.view.Count(w)
	}
	if sum != s.total {
		return fmt.Sprintf("the streams have %d records in total, not %d", sum, s.total)
	}
	return ""
}

// mixing compares the order with others.
func (p *proof) mixing(e *order.Epoch) ([]Mixing, error) {
	p.config.Step("the mixing of shards")
	s := p.config.Subject
	s.ChunkStarts = func(_, _ uint64) []uint64 { return p.starts } // already known
	compared, err := quality.Compare(e, p.config.Order, p.config.Epoch, s, quality.Resolution{}, p.goOn)
	rows := make([]Mixing, len(compared))
	for i, c := range compared {
		rows[i].Compared = c
	}
	if len(rows) > 0 {
		rows[0].Predicted = p.config.Predicted
	}
	return rows, err
}

func workersText(n uint64) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

func dealText(d spec.Assignment) string {
	if d.Dealing == spec.DealContiguous {
		return "in runs"
	}
	if d.Batch == 1 {
		return "one record at a time"
	}
	return fmt.Sprintf("%d records at a time", d.Batch)
}
