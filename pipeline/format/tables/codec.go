package tables

import (
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/format/parquet"
	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// Codec decodes one shard to its presented rows.
type Codec struct {
	choice *rows.Choice // nil: all columns, as lines
	most   int64        // bounds a row
	path   string
	packed string // the name of a codec that the shard's name implies, "" for none
}

var _ format.RangeCodec = (*Codec)(nil)

// lines is the choice of the zero Codec.
var asLines = rows.Choice{Format: "parquet", Presentation: rows.AsJSONL}

func (c *Codec) chosen() *rows.Choice {
	if c.choice == nil {
		return &asLines
	}
	return c.choice
}

// Name returns "parquet".
func (c *Codec) Name() string { return c.chosen().Format }

// Decoding implements format.RangeCodec.
func (c *Codec) Decoding() string {
	if x := c.chosen(); x.Presentation == rows.AsTar {
		return x.String() + " " + c.path
	}
	return c.chosen().String()
}

// EveryRecord implements format.RangeCodec.
func (c *Codec) EveryRecord() bool { return !c.chosen().Groups }

var errForward = errors.New("a table can't be decoded from front to back: a defect of lsiofs, please report it")

// NewDecoder returns an error: use NewRangeDecoder.
func (c *Codec) NewDecoder(io.Reader, int64) (format.Decoder, error) { return nil, errForward }

// NewPartDecoder returns an error: use NewRangeDecoder.
func (c *Codec) NewPartDecoder(io.Reader, int64) (format.PartDecoder, error) { return nil, errForward }

// NewRangeDecoder implements format.RangeCodec.
func (c *Codec) NewRangeDecoder(raw io.ReaderAt, sizeBytes int64, start format.RangeStart) format.RangeDecoder {
	return &decoder{codec: c, raw: raw, size: sizeBytes, start: start, group: -1, begun: start.Records, ordinal: start.Records}
}

const (
	// aheadBytes is how much is presented at a time, at least: enough to make the cost of a call
	// small, and little enough to stay in a core's cache.
	aheadBytes = 64 << 10
	// maxRowBytes bounds a row if the spec does not: no column's page takes more.
	maxRowBytes = 1 << 31
	// leastCursorBytes is what the pages of a cursor may take even if rows may take less: a page has
	// many rows, and there is one for each column.
	leastCursorBytes = 64 << 20
	// mostLosses is how many damaged rows of a row group are described.
	mostLosses = 1 << 10
)

// decoder decodes one row group after another.
type decoder struct {
	codec *Codec
	raw   io.ReaderAt
	size  int64
	start format.RangeStart

	file      *parquet.File // nil: not open yet
	columns   []rows.Column
	cursor    *parquet.Cursor
	presenter rows.Presenter // nil with packer
	packer    *rows.Packer
	array     *rows.NPY // presenter, if that is one

	group   int
	rawAt   int64 // of the row group
	begun   int64 // ordinal of the row group's first record
	ordinal int64 // of the next record
	row     int64 // of the next row, in the row group
	batch   *rows.Batch
	at      int // of the next row, in the batch
	done    int64
	buf     []byte
	from    int // buf[from:] was not read yet
	err     error
	lost    []*format.CorruptError
	failure error // of the shard
	held    int64 // bytes that the index pass holds for the row group

	made int64 // presented bytes of the row group before buf
	note func(format.Point) int64
	// least is how far the next point is from the last one, or from the row group's beginning.
	least, noted int64
	last         parquet.Point // the last point of the row group, or its beginning
}

// open reads the footer.
func (d *decoder) open() error {
	c := d.codec
	if c.packed != "" {
		return errPacked(c.packed)
	}
	f, is := d.start.Outline.(*parquet.File)
	if !is {
		var err error
		if f, err = parquet.Open(d.raw, d.size); err != nil {
			return err
		}
	}
	var err error
	choice, most := c.chosen(), c.most
	if most <= 0 {
		most = maxRowBytes
	}
	if d.columns, err = rows.Resolve(f.Schema, choice.Columns); err != nil {
		return err
	}
	switch {
	case choice.Pack.Length > 0:
		d.packer, err = rows.NewPacker(choice.Pack, d.columns)
	case choice.Presentation == rows.AsTar:
		d.presenter, err = rows.NewTar(d.columns, c.path, most)
	case choice.Presentation == rows.AsNPY:
		d.array, err = rows.NewNPY(d.columns, nil, most)
		d.presenter = d.array
	default:
		d.presenter = rows.NewJSONL(d.columns, most)
	}
	if err != nil {
		return err
	}
	s, err := f.Select(d.columns)
	if err != nil {
		return err
	}
	d.cursor, d.file = s.NewCursor(d.raw, parquet.Options{MaxBytes: max(most, leastCursorBytes)}), f
	return nil
}

// Next implements format.Decoder.
func (d *decoder) Next() (int64, error) {
	if d.failure != nil {
		return 0, d.failure
	}
	if d.file == nil {
		if err := d.open(); err != nil {
			d.failure = refusal(err)
			return 0, d.failure
		}
		d.rawAt = -1
		for {
			if err := d.move(); err != nil {
				return 0, err
			}
			if d.rawAt >= d.start.RawBytes {
				break
			}
		}
	} else if err := d.move(); err != nil {
		return 0, err
	}
	d.lost = d.lost[:0]
	d.batch, d.buf, d.from = nil, d.buf[:0], 0
	d.made, d.noted = 0, 0
	var p parquet.Point
	if d.start.State != nil {
		if p, d.err = parquet.ParsePoint(d.start.State); d.err != nil {
			return d.rawAt, nil
		}
		d.start.State = nil
	}
	d.row = p.Row
	if d.err = d.cursor.Open(d.group, p); d.err == nil && d.note != nil {
		d.last = d.cursor.Point()
	}
	return d.rawAt, nil
}

// Outline implements format.RangeDecoder.
func (d *decoder) Outline() format.Outline {
	if d.file == nil {
		return nil
	}
	return d.file
}

// NotePoints implements format.RangeDecoder.
func (d *decoder) NotePoints(leastBytes int64, note func(format.Point) int64) {
	d.least, d.note = leastBytes, note
}

// notePoint notes the place between two batches if it is a good point: where the column of which
// most bytes were read since the last point begins a page.
func (d *decoder) notePoint() {
	if d.note == nil || d.made-d.noted < d.least {
		return
	}
	_, n := d.file.GroupRows(d.group)
	if d.row >= n {
		return
	}
	p := d.cursor.Point()
	if widest := widestLeaf(&d.last, &p); p.Leaves[widest].Pass > 0 && d.made-d.noted < 2*d.least {
		return
	}
	end := d.size
	if d.group+1 < d.file.Groups() {
		end = max(d.rawAt+1, d.file.GroupOffset(d.group+1))
	}
	x := format.Point{
		MemberBytes: d.made, MemberRawBytes: d.rawAt, State: p.Append(nil),
		RawBits: d.rawAt<<3 + int64(float64(end-d.rawAt)*float64(d.row)/float64(n)*8),
	}
	d.noted, d.last = d.made, p
	if len(x.State) <= format.MaxStateBytes {
		d.least = d.note(x)
	}
}

// widestLeaf returns the leaf that has moved on most in the file.
func widestLeaf(from, to *parquet.Point) (widest int) {
	most := int64(-1)
	for i, l := range to.Leaves {
		if n := l.RawOffset - from.Leaves[i].RawOffset; n > most {
			widest, most = i, n
		}
	}
	return widest
}

// move moves to the next row group, without opening it.
func (d *decoder) move() error {
	if d.group+1 >= d.file.Groups() {
		d.failure = io.EOF
		return io.EOF
	}
	if d.err != io.EOF { // it is left out
		d.ordinal = d.begun
	}
	d.begun = d.ordinal
	d.group++
	d.rawAt = max(d.rawAt+1, d.file.GroupOffset(d.group))
	return nil
}

// Read implements format.Decoder.
func (d *decoder) Read(p []byte) (int, error) {
	if d.file == nil || d.failure != nil {
		return 0, io.EOF
	}
	for d.from == len(d.buf) && d.err == nil && len(p) > 0 {
		d.buf, d.from = d.buf[:0], 0
		d.err = d.present()
	}
	if d.from == len(d.buf) && d.err != nil {
		return 0, d.placed(d.err)
	}
	n := copy(p, d.buf[d.from:])
	d.from += n
	d.done += int64(n)
	return n, nil
}

// present presents the next rows.
func (d *decoder) present() (err error) {
	defer func() { d.made += int64(len(d.buf)) }()
	if d.batch == nil || d.at == d.batch.Rows {
		if d.batch != nil {
			d.notePoint()
		}
		if d.batch, err = d.cursor.Next(); err != nil {
			return err
		}
		d.at = 0
	}
	for d.at < d.batch.Rows && len(d.buf) < aheadBytes {
		if d.packer != nil {
			d.buf, err = d.packer.Append(d.buf, d.batch, d.at)
		} else {
			d.buf, err = d.presenter.Append(d.buf, d.batch, d.at, d.ordinal)
		}
		switch damage, is := errors.AsType[*rows.DamageError](err); {
		case is:
			d.lose(damage)
		case err != nil:
			return err
		default:
			d.ordinal++
		}
		d.at++
		d.row++
	}
	return nil
}

// lose notes a row that is left out.
func (d *decoder) lose(damage *rows.DamageError) {
	if len(d.lost) < mostLosses {
		d.lost = append(d.lost, &format.CorruptError{
			Record: -1, OffsetBytes: d.done + int64(len(d.buf)), RawOffset: -1,
			Part: fmt.Sprintf("row group %d, row %d, column %s", d.group, d.row, damage.Column), Reason: damage.Reason,
		})
	}
}

// losses returns the rows of the row group that were left out so far.
func (d *decoder) losses() []*format.CorruptError { return d.lost }

// placed returns an error of the row group for the callers of Read.
func (d *decoder) placed(err error) error {
	if err == io.EOF {
		return err
	}
	err = translated(err, d.done)
	if damage, ok := errors.AsType[*format.CorruptError](err); ok && damage.Part != "" {
		damage.Part = fmt.Sprintf("row group %d, row %d or after it%s", d.group, d.row, damage.Part)
	}
	if refused, ok := errors.AsType[*format.RefusedError](err); ok {
		err = &format.RefusedError{OffsetBytes: refused.OffsetBytes, Reason: fmt.Sprintf("row group %d, row %d: %s", d.group, d.row, refused.Reason)}
	}
	return err
}

// refusal returns an error of opening a shard for callers: it is at no place of the decoded shard,
// and what the columns are refused for can be changed by flags.
func refusal(err error) error {
	if _, is := errors.AsType[*rows.RefusedError](err); is {
		err = translated(err, -1)
		err.(*format.RefusedError).Settings = true
		return err
	}
	return translated(err, 0)
}

// errPacked refuses a shard whose name has the ending of a codec.
func errPacked(codec string) error {
	return &format.RefusedError{OffsetBytes: -1, Reason: fmt.Sprintf("its name implies that it is compressed with %s as a whole, which is not read: decompress it; Parquet compresses its pages", codec)}
}

// translated returns an error of packages parquet and rows as one of package format.
func translated(err error, decodedBytes int64) error {
	if damage, ok := errors.AsType[*parquet.DamageError](err); ok {
		reason := damage.Reason
		if damage.Column != "" {
			reason = "column " + damage.Column + ": " + reason
		}
		x := &format.CorruptError{Record: -1, OffsetBytes: decodedBytes, RawOffset: -1, Reason: reason}
		if damage.Group >= 0 {
			x.Part = fmt.Sprintf(", at byte %d of the file", damage.RawOffset)
		}
		return x
	}
	if refused, ok := errors.AsType[*rows.RefusedError](err); ok {
		reason := refused.Reason
		if refused.Column != "" {
			reason = "column " + refused.Column + ": " + reason
		}
		return &format.RefusedError{OffsetBytes: decodedBytes, Reason: reason}
	}
	return err
}

// kind returns the kind of the rows: see format.Uniform.
func (d *decoder) kind() (string, error) {
	var array *npy.Rows
	switch {
	case d.packer != nil:
		x, err := d.packer.Rows()
		if err != nil {
			return "", translated(err, d.done)
		}
		array = &x
	case d.array != nil && d.array.Lengths() != nil:
		x, err := d.array.Rows()
		if err != nil {
			return "", translated(err, d.done)
		}
		array = &x
	}
	return rows.KindText(d.columns, array), nil
}

// rowBytes returns the size of a row of an array, 0 if it is not known yet.
func (d *decoder) rowBytes() int64 {
	if d.array.Lengths() == nil {
		return 0
	}
	r, err := d.array.Rows()
	if err != nil {
		return 0
	}
	return r.RowBytes()
}

func (d *decoder) tokenBytes() int64 {
	if d.packer == nil {
		return 0
	}
	return d.packer.TokenBytes()
}

// PartName implements format.PartDecoder.
func (d *decoder) PartName() string { return fmt.Sprintf("row group %d", d.group) }

// MemoryBytes implements format.Decoder.
func (d *decoder) MemoryBytes() int64 {
	n := int64(cap(d.buf)) + d.held
	if d.file != nil {
		n += d.file.MemoryBytes() + d.cursor.MemoryBytes()
	}
	return n
}

// Close implements format.Decoder.
func (d *decoder) Close() {
	*d = decoder{codec: d.codec, failure: errClosed}
}

var errClosed = errors.New("the decoder of a table is closed")
