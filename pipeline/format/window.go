package format

import "io"

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
