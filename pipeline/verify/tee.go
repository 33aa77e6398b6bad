package verify

import (
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// tee wraps a shard's codec to observe every decoded byte. An uncompressed shard is treated as a
// single member, so that format.Scan skips no byte.
type tee struct {
	inner format.Codec // nil for an uncompressed shard
	// begin is called at the start of each pass over the shard, look with the bytes that follow, in
	// order.
	begin func()
	look  func(decoded []byte)
}

var _ format.Codec = tee{}

func (t tee) Name() string {
	if t.inner == nil {
		return "none"
	}
	return t.inner.Name()
}

func (t tee) Extensions() map[string]string { return nil }

func (t tee) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	t.begin()
	var d format.Decoder = &whole{raw: raw, offset: rawOffset}
	if t.inner != nil {
		var err error
		if d, err = t.inner.NewDecoder(raw, rawOffset); err != nil {
			return nil, err
		}
	}
	return watched{d, t.look}, nil
}

// watched is a decoder whose output is observed.
type watched struct {
	format.Decoder
	look func(decoded []byte)
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Decoder.Read(p)
	w.look(p[:n])
	return n, err
}

// whole presents a file as its only member.
type whole struct {
	raw    io.Reader
	offset int64
	begun  bool
}

func (w *whole) Next() (int64, error) {
	if w.begun {
		return 0, io.EOF
	}
	w.begun = true
	return w.offset, nil
}

func (w *whole) Read(p []byte) (int, error) { return w.raw.Read(p) }
func (w *whole) MemoryBytes() int64         { return 0 }
func (w *whole) Close()                     {}
