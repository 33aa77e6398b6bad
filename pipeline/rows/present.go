package rows

import "math"

// Presenter appends rows as records. Presenters are not safe for concurrent use: each decoder has
// its own.
//
// The bytes of a record depend on the row, its ordinal in the shard and the shard's path only. The
// decoded shard is the records one after another.
type Presenter interface {
	// Append appends the record of row r of a batch. ordinal is the record's position in the shard,
	// in which rows that were left out are not counted. If the row can't be presented, the error is
	// a *DamageError or a *RefusedError, and dst is returned as it was.
	Append(dst []byte, b *Batch, r int, ordinal int64) ([]byte, error)
	// Size returns the number of bytes that Append would append, or its error. It does not copy
	// the members of a sample.
	Size(b *Batch, r int, ordinal int64) (int64, error)
	// Extension returns the extension of streams.
	Extension() string
}

// limitOf returns the length that dst may have after maxBytes more; 0 means no limit.
func limitOf(dst []byte, maxBytes int64) int {
	if maxBytes <= 0 || maxBytes > math.MaxInt-int64(len(dst)) {
		return math.MaxInt
	}
	return len(dst) + int(maxBytes)
}

// JSONL presents a row as a line: a JSON object of its columns, and a newline.
type JSONL struct {
	columns  []node
	at       []int
	maxBytes int64
	scratch  []byte
}

var _ Presenter = (*JSONL)(nil)

// NewJSONL returns a presenter of lines of at most maxBytes; 0 means no limit.
func NewJSONL(columns []Column, maxBytes int64) *JSONL {
	p := &JSONL{maxBytes: maxBytes}
	for i, c := range columns {
		p.columns = append(p.columns, newNode(c.Type, c.Name, i == 0))
		p.at = append(p.at, i)
	}
	return p
}

// Append implements Presenter.
func (p *JSONL) Append(dst []byte, b *Batch, r int, _ int64) ([]byte, error) {
	w := writer{limit: limitOf(dst, p.maxBytes)}
	start := len(dst)
	dst, err := w.row(dst, p.columns, p.at, b, r)
	if err != nil {
		return dst, err
	}
	if len(dst) >= w.limit {
		return dst[:start], errTooLong()
	}
	return append(dst, '\n'), nil
}

// Size implements Presenter.
func (p *JSONL) Size(b *Batch, r int, ordinal int64) (int64, error) {
	var err error
	p.scratch, err = p.Append(p.scratch[:0], b, r, ordinal)
	return int64(len(p.scratch)), err
}

// Extension implements Presenter.
func (p *JSONL) Extension() string { return ".jsonl" }
