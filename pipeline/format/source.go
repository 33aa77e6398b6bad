package format

import (
	"io"
)

// Portions describe how to read an uncompressed shard that is not in memory: everything, in large
// portions, if the gaps between headers are small; else only the headers.
type Portions struct {
	// ReadBytes is the size to which portions grow.
	ReadBytes int
	// SkipBytes is the largest mean number of bytes between two headers for which everything is
	// read.
	SkipBytes int64
	// HeaderBytes aligns the ends of header reads; it is a power of two.
	HeaderBytes int64
}

// PortionedReaderAt is an io.ReaderAt with its own Portions, which must not change.
type PortionedReaderAt interface {
	io.ReaderAt
	Portions() Portions
}

// defaultPortions are for readers that are not a PortionedReaderAt, and for local files: through an
// engine, reading a header alone takes 6 to 25 µs of CPU time, 12 KiB of a large portion 3 µs (10⁶
// tar samples of 12 KiB).
var defaultPortions = Portions{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 4 << 10}

// How a shard that is in memory is read: only headers, if the bytes skipped unseen are worth a
// system call (0.5 µs, as much as copying 4 KiB).
const (
	firstBytes  = 64 << 10 // initial size of portions
	leastHeader = 1 << 10  // smallest read of a header

	residentSkipBytes    = 2 << 10
	residentHeaderBytes  = 2 << 10 // often includes a small member's data and the next header
	residentStretchBytes = 4 << 20 // queried for residency at a time, in 5 to 10 µs
)

// ResidentReaderAt is an io.ReaderAt that knows which of its bytes are in memory, and can read
// those on the caller's goroutine. Its methods are those of storage.Resident.
type ResidentReaderAt interface {
	io.ReaderAt
	Holds(offsetBytes, sizeBytes int64) bool
	ReadResident(p []byte, offsetBytes int64) bool
}

// fileSource is the Source of an uncompressed shard. Discarded bytes that are not buffered are not
// read.
type fileSource struct {
	raw      io.ReaderAt
	resident ResidentReaderAt // nil if raw does not implement it
	size     int64
	portions Portions

	buf        []byte
	start, end int   // buf[start:end] are the next bytes
	next       int64 // offset of buf[end]

	portion   int   // size of the next read in file order
	skipMean  int64 // moving mean of the lengths that the format skips unseen
	discarded bool  // the last call was a Discard
	err       error

	asked int64 // up to which offset residency was queried
	held  bool  // the result of that
}

// newFileSource returns a source that reads raw; resident is the same bytes, or nil.
func newFileSource(raw io.ReaderAt, resident ResidentReaderAt, size int64, p Portions) *fileSource {
	return &fileSource{raw: raw, resident: resident, size: size, portions: p, portion: min(firstBytes, p.ReadBytes)}
}

func (s *fileSource) OffsetBytes() int64 { return s.next - int64(s.end-s.start) }

func (s *fileSource) Window(min int) ([]byte, error) {
	s.discarded = false
	if s.end-s.start >= min {
		return s.buf[s.start:s.end], nil
	}
	if s.err != nil {
		return nil, s.err
	}
	if err := s.fill(min); err != nil {
		s.err = err
		return nil, err
	}
	window := s.buf[s.start:s.end]
	if len(window) < min {
		return window, io.EOF
	}
	return window, nil
}

// fill reads until min bytes are buffered or the shard ends.
func (s *fileSource) fill(min int) error {
	have := s.end - s.start
	if s.fillResident(min - have) {
		return nil
	}
	want := s.readSize(min - have)
	if int64(want) > s.size-s.next {
		want = int(s.size - s.next)
	}
	if want == 0 {
		return nil
	}
	s.makeRoom(have + want)
	n, err := s.raw.ReadAt(s.buf[s.end:s.end+want], s.next)
	if n < want {
		return shortRead(s.next, want, n, err)
	}
	s.end += want
	s.next += int64(want)
	return nil
}

// fillResident is fill from memory, reading no more than headers need. It reports whether it filled
// the buffer.
func (s *fileSource) fillResident(need int) bool {
	if s.resident == nil || s.skipMean < residentSkipBytes || s.next == s.size {
		return false
	}
	if s.next >= s.asked {
		n := min(residentStretchBytes, s.size-s.next)
		s.asked, s.held = s.next+n, s.resident.Holds(s.next, n)
	}
	if !s.held {
		return false
	}
	want := int(min(int64(max(need, residentHeaderBytes)), s.size-s.next))
	s.makeRoom(s.end - s.start + want)
	if s.held = s.resident.ReadResident(s.buf[s.end:s.end+want], s.next); s.held {
		s.end += want
		s.next += int64(want)
	}
	return s.held
}

// readSize returns how much to read when need bytes are missing.
func (s *fileSource) readSize(need int) int {
	if s.skipMean > s.portions.SkipBytes {
		// Up to the end of a page, or of several, so that a read touches few of them.
		end := s.next + int64(max(need, leastHeader))
		return int((end+s.portions.HeaderBytes-1)&^(s.portions.HeaderBytes-1) - s.next)
	}
	size := max(need, s.portion)
	s.portion = min(2*s.portion, s.portions.ReadBytes)
	return size
}

// makeRoom moves the buffered bytes to the front of a buffer of at least n bytes.
func (s *fileSource) makeRoom(n int) {
	if s.start > 0 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	if n > len(s.buf) {
		grown := make([]byte, max(n, min(2*len(s.buf), s.portions.ReadBytes)))
		s.end = copy(grown, s.buf[:s.end])
		s.buf = grown
	}
}

// Discard distinguishes bytes that the format has inspected, which it discards right after a
// Window, from those it skips unseen, which follow another Discard.
func (s *fileSource) Discard(n int64) error {
	if s.discarded {
		s.skipMean += (n - s.skipMean) / 8
	}
	s.discarded = true
	if have := int64(s.end - s.start); n <= have {
		s.start += int(n)
		return nil
	}
	if s.err != nil {
		return s.err
	}
	rest := n - int64(s.end-s.start)
	s.start, s.end = 0, 0
	if rest > s.size-s.next {
		s.next = s.size
		return io.ErrUnexpectedEOF
	}
	s.next += rest
	return nil
}

const decodedBufferBytes = 64 << 10

// decodedSource is the Source of a compressed shard up to a limit. There it ends with the damage
// that an earlier pass has found.
type decodedSource struct {
	window
	decoded *Decoded
}

func newDecodedSource(d *Decoded, limit int64, damage error) *decodedSource {
	from := &limitedReader{decoded: d, limit: limit, damage: damage}
	return &decodedSource{decoded: d, window: window{from: from, buf: make([]byte, decodedBufferBytes)}}
}

func (s *decodedSource) OffsetBytes() int64 { return s.decoded.OffsetBytes() - s.sizeBytes() }

// drain reads everything up to the end, so that every checksum is verified.
func (s *decodedSource) drain() error {
	for {
		s.start = s.end
		if err := s.fill(1); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// limitedReader reads a decoded shard up to limit, where it returns damage.
type limitedReader struct {
	decoded *Decoded
	limit   int64 // of the decoded shard; bytes from here on are not returned
	damage  error
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if left := l.limit - l.decoded.OffsetBytes(); int64(len(p)) > left {
		p = p[:left]
	}
	if len(p) == 0 {
		return 0, l.damage
	}
	return l.decoded.Read(p)
}

// window is the buffered part of a decoded shard. It implements Window and Discard for the sources
// that decode. It is not safe for concurrent use.
type window struct {
	// from reads the bytes after buf[:end].
	from io.Reader
	buf  []byte
	// buf[start:end] are the next bytes.
	start, end int
	err        error // what follows buf[:end]; sticky
}

// Window implements Source.
func (w *window) Window(min int) ([]byte, error) {
	for w.end-w.start < min {
		if err := w.fill(min); err != nil {
			return w.buf[w.start:w.end], err
		}
	}
	return w.buf[w.start:w.end], nil
}

// Discard implements Source.
func (w *window) Discard(n int64) error {
	for n > w.sizeBytes() {
		n -= w.sizeBytes()
		w.start = w.end
		if err := w.fill(1); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
	w.start += int(n)
	return nil
}

// sizeBytes returns how many bytes are buffered.
func (w *window) sizeBytes() int64 { return int64(w.end - w.start) }

// fill reads once, into a buffer with space for at least room bytes; room must exceed the buffered
// bytes.
func (w *window) fill(room int) error {
	if w.err != nil {
		return w.err
	}
	if w.start > 0 && (w.start == w.end || w.start+room > len(w.buf)) {
		w.end = copy(w.buf, w.buf[w.start:w.end])
		w.start = 0
	}
	if room > len(w.buf) {
		grown := make([]byte, max(room, 2*len(w.buf)))
		w.end = copy(grown, w.buf[:w.end])
		w.buf = grown
	}
	n, err := w.from.Read(w.buf[w.end:])
	w.end += n
	w.err = err
	if n > 0 {
		return nil
	}
	return err
}

// endWith drops the buffered bytes. err follows.
func (w *window) endWith(err error) { w.start, w.end, w.err = 0, 0, err }
