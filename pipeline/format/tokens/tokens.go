// Package tokens finds records in files of tokens, which are numbers of one size, one after another:
//
//	X.bin  │ header H bytes │ t0 │ t1 │ t2 │ …            little-endian; u1 i1 i2 i4 i8 f4 f8 u2 u4
//
//	--pack 3     t0 t1 t2 │ t3 t4 t5 │ …                  rows of an .npy
//	--pack 3+1   t0 t1 t2 t3 │ t3 t4 t5 t6 │ …            likewise; records overlap
//	documents    t0 t1 │ t2 t3 t4 t5 │ …                  the bytes as they are
//
// Records are ranges of the file, so they are read like those of package fixed. A second file beside
// the shard may describe it: where documents end, and the dtype. Packing does not depend on where
// documents end.
//
//	shard             description   written by                  has
//	X.bin             X.idx         Megatron-LM, NeMo           dtype, sequences: the documents
//	X.ds              X.ds.index    datatrove                   documents
//	X.bin, any other  none          nanoGPT, numpy.tofile       nothing
//
// # Megatron's .idx
//
//	MMIDIDX\0\0 │ u64 version 1 │ u8 dtype │ u64 S │ u64 D │ i32 lengths[S] │ i64 pointers[S] │
//	i64 documents[D] │ perhaps i8 modes[S]
//
// All little-endian, as in megatron/core/datasets/indexed_dataset.py. A length is in tokens, a
// pointer in bytes. Pointers that are not the sums of the lengths before them are refused, and so
// is a .bin that does not end with the last sequence. documents and modes are not used.
//
// # datatrove's .ds.index
//
//	u64 ends[]                                            in tokens, exclusive, ascending
//
// Descriptions are read front to back through buffers of 256 KiB, whatever they claim.
package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/rows"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Format is the format.Format of tokens. Its records are documents, unless they are packed.
type Format struct {
	pack   rows.Pack // zero: documents
	dtype  string    // "u2"; "" if only a description has it
	header int64
	beside *description // of one shard; nil if it has none
}

// Windows is Format for rows of tokens whose dtype is known.
type Windows struct {
	Format
	rows npy.Rows
}

var (
	_ format.Uniform   = Format{}
	_ format.Headed    = Format{}
	_ format.Emptyable = Format{}
	_ format.Opaque    = Format{}
	_ format.Paired    = Format{}
	_ format.Framer    = Windows{}
)

// New returns the format with the parameters of a spec.
func New(f spec.Format) (format.Format, error) {
	x := Format{dtype: f.Rows.Dtype, header: f.HeaderBytes}
	f.Name = x.Name()
	err := f.RowsError()
	switch {
	case err != nil:
		return nil, err
	case x.dtype != "" && x.dtype != "u2" && x.dtype != "u4" && x.dtype != "i4" && x.dtype != "i8":
		return nil, fmt.Errorf("--dtype %s: it must be u2, u4, i4 or i8", x.dtype)
	case f.Rows.Pack == "":
		return x, nil
	}
	if x.pack, err = rows.ParsePack(f.Rows.Pack); err != nil {
		return nil, err
	}
	return x, nil
}

// Text returns the parameters of a format as they are in a fingerprint, for tokens of a kind.
func Text(f spec.Format, kind string) string {
	dtype := kind
	if f.Rows.Pack != "" { // '<u2' (4096,)
		quoted, _, _ := strings.Cut(kind, " ")
		dtype = strings.TrimLeft(strings.Trim(quoted, "'"), "<|")
	}
	return " " + dtype + parameters(f)
}

// Line returns the parameters of a format as they are in an index.
func Line(f spec.Format) string {
	text := parameters(f)
	if f.Rows.Dtype != "" {
		text += " dtype " + f.Rows.Dtype
	}
	return text
}

func parameters(f spec.Format) (text string) {
	if f.HeaderBytes > 0 {
		text = fmt.Sprintf(" header %d", f.HeaderBytes)
	}
	if f.Rows.Pack == "" {
		return text
	}
	p, _ := rows.ParsePack(f.Rows.Pack) // such a format is never used if there is an error
	return text + " pack " + p.String()
}

// Name returns "tokens".
func (Format) Name() string { return "tokens" }

// StreamExtension returns ".npy" for rows, and ".bin" for documents.
func (f Format) StreamExtension(string) string {
	if f.pack.Length > 0 {
		return ".npy"
	}
	return ".bin"
}

// AnyBytes implements format.Opaque.
func (Format) AnyBytes() {}

// EmptyShards implements format.Emptyable.
func (Format) EmptyShards() {}

// Sniff returns false: tokens can't be recognized by their bytes.
func (Format) Sniff([]byte) bool { return false }

// HeadBytes implements format.Headed. Index reads none of them.
func (Format) HeadBytes() int { return 4 << 10 }

// Index implements format.Format.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	_, err := f.IndexKind(ctx, src, emit)
	return err
}

// IndexKind implements format.Uniform. It reads the description, and no byte of the shard.
func (f Format) IndexKind(ctx context.Context, src format.Source, emit func(format.Extent) error) (string, error) {
	h, err := f.beside.head(f.dtype)
	switch {
	case err != nil:
		return "", err
	case h.dtype == "":
		return "", refused("nothing describes its tokens: give their type with --dtype u2, or u4; an .idx of Megatron, which has the type, must be beside the .bin")
	case f.pack.Length == 0 && f.beside == nil:
		return "", refused("where its documents end is not known, as no .idx or .ds.index is beside it: give --pack L, which makes records of L tokens")
	case f.beside != nil && f.header > 0:
		return "", refused("--header-bytes is for files without a description, and %s is beside it", f.beside.path)
	}
	c := cutter{src: src, width: h.width(), emit: emit, beside: f.beside}
	kind := h.dtype
	if f.pack.Length > 0 {
		r, err := npy.NewRows("'"+descrOf(h.dtype)+"'", []int64{f.pack.Tokens()})
		if err != nil {
			return "", err
		}
		kind = r.Kind()
	}
	if err := c.header(f.header); err != nil {
		return kind, err
	}
	if f.pack.Length == 0 {
		end, err := f.beside.documents(ctx, h, c.document)
		if err == nil {
			err = c.end(end)
		}
		return kind, err
	}
	end := int64(-1)
	if f.beside != nil {
		if end, err = f.beside.documents(ctx, h, nil); err != nil {
			return kind, err
		}
	}
	return kind, c.windows(ctx, f.pack, end)
}

func refused(text string, args ...any) error {
	return &format.RefusedError{Reason: fmt.Sprintf(text, args...)}
}

// cutter emits the records of a shard.
type cutter struct {
	src    format.Source
	width  int64 // of a token, in bytes
	emit   func(format.Extent) error
	beside *description
	begin  int64 // of the tokens
	at     int64 // up to where the shard is known to have bytes
}

// header skips the bytes before the first token. A shard may have no bytes at all.
func (c *cutter) header(n int64) error {
	c.begin = n
	ok, err := c.reach(n)
	if size := c.src.OffsetBytes(); err == nil && !ok && size > 0 {
		return format.Corrupt(0, 0, "the file has %d bytes, fewer than its header of %d", size, n)
	}
	return err
}

// reach moves to an offset, and reports whether the shard has that many bytes.
func (c *cutter) reach(to int64) (bool, error) {
	switch err := c.src.Discard(to - c.at); {
	case err == nil:
		c.at = to
		return true, nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return false, nil
	default:
		return false, err
	}
}

// must moves to an offset that the shard has by its description.
func (c *cutter) must(to int64) error {
	ok, err := c.reach(to)
	if err == nil && !ok {
		return refused("it has %d bytes, and by %s at least %d: copy both files again", c.src.OffsetBytes(), c.beside.path, to)
	}
	return err
}

// document emits a document that begins where the previous one ends.
func (c *cutter) document(sizeBytes int64) error {
	at := c.at
	if err := c.must(at + sizeBytes); err != nil {
		return err
	}
	return c.emit(format.Extent{OffsetBytes: at, SizeBytes: sizeBytes})
}

// end checks that the shard ends at an offset.
func (c *cutter) end(at int64) error {
	if err := c.must(at); err != nil {
		return err
	}
	rest, err := c.src.Window(1)
	switch {
	case len(rest) > 0:
		return refused("it has bytes after byte %d, where its last document ends by %s: copy both files again", at, c.beside.path)
	case err == io.EOF:
		return nil
	}
	return err
}

// windows emits records of equally many tokens. end is where the shard must end by its description,
// -1 without one.
func (c *cutter) windows(ctx context.Context, p rows.Pack, end int64) error {
	for i := int64(0); ; i++ {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, size := p.Extent(i, c.width)
		at += c.begin
		if end >= 0 && at+size > end {
			return c.end(end)
		}
		if ok, err := c.reach(at + size); err != nil {
			return err
		} else if !ok {
			return c.rest(i, end)
		}
		if err := c.emit(format.Extent{OffsetBytes: at, SizeBytes: size}); err != nil {
			return err
		}
	}
}

// rest judges the end of a shard in which a record has no room.
func (c *cutter) rest(record, end int64) error {
	size := c.src.OffsetBytes()
	if end >= 0 {
		return c.must(end)
	}
	if n := (size - c.begin) % c.width; n > 0 {
		return format.Corrupt(record, size-n, "the last %d bytes are not a whole token of %d", n, c.width)
	}
	return nil
}

// SameKind implements format.Uniform.
func (Format) SameKind(a, b string) bool { return a == b }

// OfKind implements format.Uniform.
func (f Format) OfKind(kind string) (format.Format, error) {
	if f.pack.Length == 0 {
		if widthOf(kind) == 0 {
			return nil, fmt.Errorf("%q is not a type of tokens", kind)
		}
		return f, nil
	}
	x, err := npy.Format{}.OfKind(kind)
	if err != nil {
		return nil, err
	}
	return Windows{f, x.(npy.Rows)}, nil
}

// Prologue implements format.Framer.
func (w Windows) Prologue(n uint64) []byte { return w.rows.Prologue(n) }

// Epilogue implements format.Framer.
func (Windows) Epilogue(uint64) []byte { return nil }
