// Package tables reads shards that are tables, of columns and rows: Parquet. A row is a record. It
// is presented as a line of JSON, a tar sample, or a row of an .npy array, as package rows does it.
//
//	file ──► parquet.Cursor ──► rows.Presenter ──► decoded shard: the presented rows, one after another
//	         └─────────── Codec ───────────┘      └──► lines, tar: records
//
// So a table is a compressed shard for the rest of the program: Codec decodes it, its parts are the
// row groups, and decoding can start at each of them. Damage of a row group costs that row group.
//
// The decoded bytes depend on the choice of columns and of the presentation, and in samples' keys on
// the shard's path. Therefore each shard has a Codec of its own.
package tables

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/format/parquet"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/rows"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// magic is how a Parquet file begins and ends.
const magic = "PAR1"

// Format is the format.Format of Parquet. Its streams are lines, or it is embedded in one of the
// types below.
type Format struct {
	choice *rows.Choice
	most   int64 // bounds a row; 0: maxRowBytes
}

// Samples is Format for tar samples.
type Samples struct {
	Format
	samples
}

// Arrays is Format for rows of an array; its kind is known.
type Arrays struct {
	Format
	rows npy.Rows
}

// samples is the part of the format tar that streams of samples have.
type samples struct{ tar tar.Format }

var (
	_ format.Coded   = Format{}
	_ format.Uniform = Format{}
	_ format.Renamer = Samples{}
	_ format.Framer  = Samples{}
	_ format.Framer  = Arrays{}
)

// New returns the format with the parameters of a spec. Until the presentation is known, it is that
// of lines: see Resolve.
func New(f spec.Format) (format.Format, error) {
	c, err := choiceOf(f)
	if err != nil {
		return nil, err
	}
	x := Format{&c, f.MaxRowBytes}
	if c.Presentation == rows.AsTar {
		return Samples{Format: x}, nil
	}
	return x, nil
}

// choiceOf parses the parameters.
func choiceOf(f spec.Format) (c rows.Choice, err error) {
	c = rows.Choice{Format: f.Name, Presentation: rows.Presentation(f.As), Groups: f.Rows.Groups}
	if f.Rows.Columns != "" {
		if c.Columns, err = rows.ParseColumns(f.Rows.Columns); err != nil {
			return c, err
		}
	}
	if f.Rows.Pack == "" {
		if f.Rows.EOS != "" || f.Rows.Dtype != "" {
			return c, errors.New("--eos and --dtype need --pack")
		}
		return c, nil
	}
	if c.Pack, err = rows.ParsePack(f.Rows.Pack); err != nil {
		return c, err
	}
	if f.Rows.EOS != "" {
		if c.Pack.EOS, err = strconv.ParseInt(f.Rows.EOS, 10, 64); err != nil {
			return c, fmt.Errorf("--eos %s: it must be the number of a token", f.Rows.EOS)
		}
		c.Pack.HasEOS = true
	}
	if c.Pack.Dtype = f.Rows.Dtype; !rows.IsTokenDtype(c.Pack.Dtype) {
		return c, fmt.Errorf("--dtype %s: it must be u2, u4, i4 or i8", c.Pack.Dtype)
	}
	c.Presentation, err = rows.Present(string(f.As), true, nil)
	return c, err
}

// Text returns the text that stands for the format in a dataset's fingerprint.
func Text(f spec.Format) string {
	c, err := choiceOf(f)
	if err != nil {
		return f.Name // such a format is never used
	}
	return c.String()
}

// Resolve returns f with a presentation: if it has none, it is the default for the columns of a
// shard. Errors name no shard.
func Resolve(f spec.Format, raw io.ReaderAt, sizeBytes int64) (spec.Format, error) {
	c, err := choiceOf(f)
	if err != nil || c.Presentation != "" {
		f.As = spec.As(c.Presentation)
		return f, err
	}
	file, err := parquet.Open(raw, sizeBytes)
	if err != nil {
		return f, refusal(err)
	}
	columns, err := rows.Resolve(file.Schema, c.Columns)
	if err != nil {
		return f, refusal(err)
	}
	p, err := rows.Present("", false, columns)
	f.As = spec.As(p)
	return f, err
}

// Name returns "parquet".
func (f Format) Name() string { return f.choice.Format }

// StreamExtension returns the extension of what rows are presented as.
func (f Format) StreamExtension(string) string {
	if f.choice.Presentation == "" {
		return ".jsonl"
	}
	return "." + string(f.choice.Presentation)
}

// Sniff reports whether head begins as a Parquet file.
func (Format) Sniff(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }

// Codec implements format.Coded.
func (f Format) Codec(path string, byEnding format.Codec) format.Codec {
	c := &Codec{choice: f.choice, path: path, most: f.most}
	if byEnding != nil {
		c.packed = byEnding.Name()
	}
	return c
}

// Index implements format.Format.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	_, err := f.IndexKind(ctx, src, emit)
	return err
}

// IndexKind implements format.Uniform. The records of a row group are emitted once all of it has
// been decoded.
func (f Format) IndexKind(ctx context.Context, src format.Source, emit func(format.Extent) error) (kind string, err error) {
	parts, ok := src.(*format.Parts)
	if !ok {
		return "", errors.New("a table is read through its codec only: a defect of lsiofs, please report it")
	}
	d := decoderOf(parts.Decoder())
	if d == nil {
		return "", errors.New("a table is read by its own decoder only: a defect of lsiofs, please report it")
	}
	held := extents{keyed: f.choice.Presentation == rows.AsTar}
	add := func(e format.Extent) error {
		err := held.add(e)
		d.held = int64(cap(held.encoded)) // it is charged with the decoder's memory
		return err
	}
	for {
		d.held = 0 // it is none of a decoder that reads streams
		err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return kind, err
		}
		held.reset()
		d.held = int64(cap(held.encoded))
		err = f.indexPart(ctx, parts, d, add)
		if damage, is := errors.AsType[*format.CorruptError](err); is {
			parts.Lose(damage)
			continue
		}
		if err != nil {
			return kind, err
		}
		if kind, err = d.kind(); err != nil {
			return kind, err
		}
		for _, l := range d.losses() {
			parts.Lack(l)
		}
		if err := held.each(emit); err != nil {
			return kind, err
		}
	}
	if f.choice.Pack.Length > 0 {
		return kind, emitWindows(ctx, &f.choice.Pack, d.tokenBytes(), parts.OffsetBytes(), emit)
	}
	return kind, nil
}

// decoderOf returns the decoder of a table that d is or wraps, or nil.
func decoderOf(d format.Decoder) *decoder {
	for {
		if own, ok := d.(*decoder); ok {
			return own
		}
		w, ok := d.(interface{ Unwrap() format.Decoder })
		if !ok {
			return nil
		}
		d = w.Unwrap()
	}
}

// indexPart reads a row group, and passes its records to emit.
func (f Format) indexPart(ctx context.Context, src *format.Parts, d *decoder, emit func(format.Extent) error) error {
	switch {
	case f.choice.Pack.Length > 0:
		return skipAll(src, nil)
	case f.choice.Presentation == rows.AsTar:
		return tar.Format{}.Index(ctx, src, emit)
	case f.choice.Presentation == rows.AsNPY:
		return skipAll(src, func(at int64, window []byte) (int, error) {
			n := d.rowBytes()
			if int64(len(window)) < n {
				return 0, nil
			}
			return int(n), emit(format.Extent{OffsetBytes: at, SizeBytes: n})
		})
	}
	return lines.JSONL().Index(ctx, src, emit)
}

// skipAll reads the source to its end. each, if it is not nil, returns how many of the next bytes
// make a record, 0 if they are too few.
func skipAll(src format.Source, each func(at int64, window []byte) (int, error)) error {
	min := 1
	for {
		window, err := src.Window(min)
		if len(window) == 0 && err == io.EOF {
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		n := len(window)
		if each != nil {
			var failed error
			if n, failed = each(src.OffsetBytes(), window); failed != nil {
				return failed
			}
			if n == 0 {
				if err == io.EOF {
					return errors.New("a row of an array is incomplete: a defect of lsiofs, please report it")
				}
				min = len(window) + 1
				continue
			}
		}
		if err := src.Discard(int64(n)); err != nil {
			return err
		}
		min = 1
	}
}

// emitWindows emits the records of packed tokens, which take that many bytes in total.
func emitWindows(ctx context.Context, p *rows.Pack, tokenBytes, decodedBytes int64, emit func(format.Extent) error) error {
	if tokenBytes == 0 {
		return nil // the shard has no row groups
	}
	for i := range p.Records(decodedBytes / tokenBytes) {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, size := p.Extent(i, tokenBytes)
		if err := emit(format.Extent{OffsetBytes: at, SizeBytes: size}); err != nil {
			return err
		}
	}
	return nil
}

// SameKind implements format.Uniform.
func (Format) SameKind(a, b string) bool { return a == b }

// OfKind implements format.Uniform.
func (f Format) OfKind(kind string) (format.Format, error) {
	switch f.choice.Presentation {
	case rows.AsTar:
		return Samples{Format: f}, nil
	case rows.AsNPY:
		at := bytes.LastIndexByte([]byte(kind), '\n')
		x, err := npy.Format{}.OfKind(kind[at+1:])
		if err != nil {
			return nil, err
		}
		return Arrays{f, x.(npy.Rows)}, nil
	}
	return f, nil
}

// Prologue implements format.Framer.
func (s samples) Prologue(n uint64) []byte { return s.tar.Prologue(n) }

// Epilogue implements format.Framer.
func (s samples) Epilogue(n uint64) []byte { return s.tar.Epilogue(n) }

// Rename implements format.Renamer.
func (s samples) Rename(dst, record []byte, position uint64) ([]byte, error) {
	return s.tar.Rename(dst, record, position)
}

// Prologue implements format.Framer.
func (a Arrays) Prologue(n uint64) []byte { return a.rows.Prologue(n) }

// Epilogue implements format.Framer.
func (Arrays) Epilogue(uint64) []byte { return nil }

// extents are the records of a row group, held until all of it has been decoded. They follow one
// another, and begin where the row group does. A short line takes one byte, a sample about ten.
type extents struct {
	keyed   bool // they have hashes of keys
	at      int64
	n       int
	encoded []byte          // of each: its size, and the hash of its key
	growth  map[int][]int64 // of the few that have one
}

func (x *extents) reset() {
	x.at, x.n, x.encoded = 0, 0, x.encoded[:0]
	clear(x.growth)
}

func (x *extents) add(e format.Extent) error {
	if x.n == 0 {
		x.at = e.OffsetBytes
	}
	if e.Growth != nil {
		if x.growth == nil {
			x.growth = map[int][]int64{}
		}
		x.growth[x.n] = slices.Clone(e.Growth)
	}
	x.n++
	x.encoded = binary.AppendUvarint(x.encoded, uint64(e.SizeBytes))
	if x.keyed {
		x.encoded = binary.LittleEndian.AppendUint64(x.encoded, e.KeyHash)
	}
	return nil
}

func (x *extents) each(emit func(format.Extent) error) error {
	e, rest := format.Extent{OffsetBytes: x.at}, x.encoded
	for i := range x.n {
		size, n := binary.Uvarint(rest)
		rest = rest[n:]
		if x.keyed {
			e.KeyHash, rest = binary.LittleEndian.Uint64(rest), rest[8:]
		}
		e.SizeBytes, e.Growth = int64(size), x.growth[i]
		if err := emit(e); err != nil {
			return err
		}
		e.OffsetBytes += e.SizeBytes
	}
	return nil
}
