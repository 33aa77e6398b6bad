package tar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// member is one member of an archive with the headers that belong to it. All positions are offsets
// in the decoded shard.
type member struct {
	start  int64 // its first header: an extension header or its own
	header int64 // its own header
	end    int64 // the end of its padded data
	size   int64 // of its data

	regular     bool
	prefixBytes int    // of its ustar prefix
	path        []byte // valid until the next call of next
	pax         paxHeader
	long        longName
}

// paxHeader is the last PAX header of a member.
type paxHeader struct {
	at        int64 // of its header block; -1: there is none
	dataBytes int64
	// [pathStart, pathEnd) is the last path record in its data; empty: none.
	pathStart, pathEnd int
}

// longName is the last GNU long name header of a member.
type longName struct {
	at        int64 // of its header block; -1: there is none
	dataBytes int64
}

// walker reads the headers of an archive.
type walker struct {
	src    format.Source
	record int64 // reported in damage
	from   int64 // where that record begins, -1: at the damage
	skip   int64 // what is left of the previous member

	m        member
	path     []byte // scratch for m.path
	extended bool   // an extension header precedes the next member
	pathFrom pathSource
	size     int64 // from PAX headers, -1: none
	sparse   bool
	bad      string
	visit    func(paxRecord)
}

// pathSource is the source of a member's path; later ones take precedence.
type pathSource int

const (
	fromHeader pathSource = iota
	fromLongName
	fromPAX
)

func newWalker(src format.Source) *walker {
	w := &walker{src: src, from: -1}
	// Created once: creating a closure for each header would be one allocation per header.
	w.visit = w.visitPAX
	return w
}

// next reads up to the next member that is not an extension header, and returns io.EOF at the
// archive's end. Its result is valid until the next call.
func (w *walker) next(ctx context.Context) (*member, error) {
	if err := w.pass(); err != nil {
		return nil, err
	}
	w.reset()
	for {
		at := w.src.OffsetBytes()
		block, err := w.src.Window(blockBytes)
		if err == io.EOF && len(block) > 0 {
			return nil, w.corrupt(at, "the file ends inside a header, after %d of its %d bytes", len(block), blockBytes)
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		sum := uint32(0)
		if err == nil {
			sum = byteSum(block)
		}
		if sum == 0 { // a zero block, or the file's end
			if w.extended {
				return nil, w.corrupt(w.m.start, "no member follows an extension header")
			}
			return nil, io.EOF
		}
		done, err := w.header(block[:blockBytes], at, sum)
		if done || err != nil {
			return &w.m, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// tail reads what follows the archive's end, which next has found, and returns io.EOF if that is
// zeros to the end of the file. Any other byte is damage: the archive is incomplete, such as a copy
// with a hole, or a second archive was appended.
func (w *walker) tail(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		window, err := w.src.Window(1)
		if err == io.EOF && w.src.OffsetBytes() == 0 {
			return w.corrupt(0, "the archive is empty, without even the blocks of zeros that end one")
		}
		if errors.As(err, new(*format.CorruptError)) {
			return io.EOF // damage found by the codec, after all records: it is found again when the rest of the shard is decoded
		}
		if err != nil {
			return err
		}
		for i, b := range window {
			if b != 0 {
				return format.Corrupt(w.record, w.src.OffsetBytes()+int64(i), "%s", reasonBehindEnd)
			}
		}
		if err := w.src.Discard(int64(len(window))); err != nil {
			return err
		}
	}
}

const reasonBehindEnd = "bytes follow the block of zeros that ends the archive: a part of the file was not copied, or a second archive was appended (tar -A joins archives)"

// pass skips what is left of the last member.
func (w *walker) pass() error {
	if w.skip == 0 {
		return nil
	}
	err := w.src.Discard(w.skip)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return w.corrupt(w.m.header, "the file ends inside a member, which has %d bytes of data and padding", w.skip)
	}
	w.skip = 0
	return err
}

func (w *walker) reset() {
	w.m = member{start: -1, pax: paxHeader{at: -1}, long: longName{at: -1}}
	w.extended, w.pathFrom, w.size = false, fromHeader, -1
}

// header processes one header block; done means that it was a member's own.
func (w *walker) header(block []byte, at int64, sum uint32) (done bool, err error) {
	if !checksumHolds(block, sum) {
		return false, w.corrupt(at, "the header's checksum does not match")
	}
	t := block[typeAt]
	size, ok := int64(0), true
	if hasData(t) { // otherwise the field may contain anything
		size, ok = parseSize(block)
	}
	if !ok {
		return false, w.corrupt(at, "the header's size field is not a number")
	}
	switch t {
	case typePAX, typeSolarisPAX, typeGlobalPAX, typeLongName, typeLongLink:
		if t != typeGlobalPAX {
			w.extended = true
			if w.m.start < 0 {
				w.m.start = at
			}
		}
		return false, w.extension(t, at, size)
	case typeSparse:
		return false, &format.RefusedError{OffsetBytes: at, Reason: sparseReason}
	default:
		return true, w.own(block, t, at, size)
	}
}

const sparseReason = "a member is sparse: unpack the archive and pack it again without --sparse"

// own processes a member's own header.
func (w *walker) own(block []byte, t byte, at, size int64) error {
	m := &w.m
	if m.start < 0 {
		m.start = at
	}
	m.header, m.regular = at, isRegular(t)
	m.prefixBytes = len(ustarPrefix(block))
	if w.pathFrom == fromHeader {
		w.path = appendHeaderPath(w.path[:0], block)
	}
	m.path = w.path
	if w.size >= 0 {
		size = w.size
	}
	if !hasData(t) {
		size = 0
	}
	// If the data ends beyond the file, that is damage of this member, found when it is skipped:
	// its header shows where the previous record ends.
	m.size = size
	w.skip = padded(size)
	m.end = at + blockBytes + w.skip
	return w.src.Discard(blockBytes)
}

// extension processes the data of an extension header.
func (w *walker) extension(t byte, at, size int64) error {
	n := padded(size)
	if err := w.src.Discard(blockBytes); err != nil {
		return err
	}
	if t == typeLongLink {
		return w.passExtension(at, n)
	}
	if n > format.MaxWindowBytes {
		if err := w.passExtension(at, n); err != nil {
			return err
		}
		return &format.RefusedError{OffsetBytes: at, Reason: "an extension header has more than 1 MiB: pack the archive again without it"}
	}
	data, err := w.src.Window(int(n))
	if err == io.EOF {
		return w.corrupt(at, "the file ends inside an extension header")
	}
	if err != nil {
		return err
	}
	data = data[:size]
	switch t {
	case typeLongName:
		w.longName(at, data)
	default:
		if err := w.pax(t, at, data); err != nil {
			return err
		}
	}
	return w.src.Discard(n)
}

func (w *walker) passExtension(at, n int64) error {
	err := w.src.Discard(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return w.corrupt(at, "the file ends inside an extension header")
	}
	return err
}

func (w *walker) longName(at int64, data []byte) {
	w.m.long = longName{at: at, dataBytes: int64(len(data))}
	if w.pathFrom <= fromLongName {
		w.pathFrom = fromLongName
		w.path = append(w.path[:0], text(data)...)
	}
}

func (w *walker) pax(t byte, at int64, data []byte) error {
	w.sparse, w.bad = false, ""
	if t == typeGlobalPAX {
		return w.global(at, data)
	}
	w.m.pax = paxHeader{at: at, dataBytes: int64(len(data))}
	if reason := parsePAX(data, w.visit); reason != "" {
		return w.corrupt(at, "%s", reason)
	}
	if w.bad != "" {
		return w.corrupt(at, "%s", w.bad)
	}
	if w.sparse {
		return &format.RefusedError{OffsetBytes: at, Reason: sparseReason}
	}
	return nil
}

var (
	keyPath      = []byte("path")
	keySize      = []byte("size")
	keySparseAny = []byte("GNU.sparse.")
)

// visitPAX processes one record of a member's PAX header.
func (w *walker) visitPAX(r paxRecord) {
	switch {
	case bytes.Equal(r.key, keyPath):
		w.pathFrom = fromPAX
		w.path = append(w.path[:0], r.value...)
		w.m.pax.pathStart, w.m.pax.pathEnd = r.start, r.end
	case bytes.Equal(r.key, keySize):
		size, ok := parseDecimal(r.value)
		if !ok {
			w.bad = "a PAX header's size is not a number"
		}
		w.size = size
	case bytes.HasPrefix(r.key, keySparseAny):
		w.sparse = true
	}
}

// global ignores a global PAX header, unless it changes the members.
func (w *walker) global(at int64, data []byte) error {
	refused := ""
	reason := parsePAX(data, func(r paxRecord) {
		switch {
		case bytes.Equal(r.key, keyPath), bytes.Equal(r.key, keySize):
			refused = "a global PAX header sets " + string(r.key) + " for all members: pack the archive again without it"
		case bytes.HasPrefix(r.key, keySparseAny):
			refused = sparseReason
		}
	})
	if reason != "" {
		return w.corrupt(at, "%s", reason)
	}
	if refused != "" {
		return &format.RefusedError{OffsetBytes: at, Reason: refused}
	}
	return nil
}

// corrupt returns damage at an offset, attributed to the record that it makes unreadable.
func (w *walker) corrupt(at int64, formatName string, args ...any) error {
	err := format.Corrupt(w.record, at, formatName, args...)
	if w.from >= 0 && w.from != at {
		err.OffsetBytes = w.from
		err.Reason = fmt.Sprintf("%s (at offset %d)", err.Reason, at)
	}
	return err
}

// Members iterates over the members of an archive, for codecs that read the data of some of them.
// It refuses and reports the same things as Format. It is not safe for concurrent use.
type Members struct{ w *walker }

// Member is one member of an archive. Offsets are those of the source.
type Member struct {
	// StartBytes is the offset of its first header: an extension header or its own.
	StartBytes int64
	// SizeBytes is the size of its data, which may end beyond the file.
	SizeBytes int64
	// Regular is whether it is a file, not a directory, link or label.
	Regular bool
	// Path is valid until the next call of Next.
	Path []byte
}

// NewMembers iterates over src from its current position, which must be a member's first header.
func NewMembers(src format.Source) Members { return Members{newWalker(src)} }

// Next moves to the next member, and returns io.EOF at the archive's end. The source is then at the
// member's data. The caller may consume data from the source, and must report the number of bytes
// with Consumed.
func (m Members) Next(ctx context.Context) (Member, error) {
	x, err := m.w.next(ctx)
	if err == io.EOF {
		err = m.w.tail(ctx)
	}
	if err != nil {
		return Member{}, err
	}
	return Member{StartBytes: x.start, SizeBytes: x.size, Regular: x.regular, Path: x.path}, nil
}

// Consumed reports how many bytes of the member's data the caller has consumed from the source.
func (m Members) Consumed(bytes int64) { m.w.skip -= bytes }
