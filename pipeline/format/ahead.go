package format

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// MemberCodec is implemented by codecs that can find the end of a member without decoding it: zstd
// and lz4, whose blocks begin with their size.
type MemberCodec interface {
	Codec
	// NewWalk returns a walk of raw bytes; its arguments are those of NewDecoder.
	NewWalk(raw io.Reader, rawOffset int64) Walk
}

// Walk iterates over the members of a shard without decoding them. It is not safe for concurrent
// use.
type Walk interface {
	// Next moves to the next member, and fails as Decoder's Next does. The previous member must
	// have been read to its end.
	Next() (rawOffset int64, err error)
	// Read reads the member's raw bytes, and returns io.EOF at its end. Another error means that
	// the end can't be found.
	Read(p []byte) (int, error)
	// Raw returns the input. After a failed Read it continues with the bytes not yet returned.
	Raw() *Raw
	// DecodedBytes estimates the decoded size of the member from what has been read of it. It is
	// rarely too small.
	DecodedBytes() int64
	// DecoderBytes returns approximately how much memory a decoder of the member takes.
	DecoderBytes() int64
	// Close releases the walk.
	Close()
}

// Room is the memory budget of members that are decoded ahead. It is safe for concurrent use.
type Room interface {
	// TryTake takes room for one member that needs that many bytes. It does not wait: false means
	// that there is no room.
	TryTake(bytes int64) bool
	Give(bytes int64)
}

// Ahead is a codec whose decoders decode the following members on goroutines of their own, as long
// as there is room. One goroutine reads the file forward, and cuts it into members by walking their
// blocks. Each member is then decoded from its own bytes. So the result is exactly that of
// MemberCodec's decoders, bytes and errors alike.
//
// The seek table at the end of files in zstd's seekable format is not used. It lists where frames
// begin, but would save nothing, and may be wrong.
//
// Up to 8 MiB of a member are decoded ahead. The rest of it, and members of more than 4 MiB in the
// file, are decoded in turn.
type Ahead struct {
	MemberCodec
	// InTurn makes the decoders of members that are decoded in turn because there is no room. It
	// may wait for room, since none is held at that time.
	InTurn Codec
	Room   Room
}

const (
	// aheadRawBytes and aheadBytes bound a member that is decoded ahead: pzstd's frames have 8 MiB
	// at its default level.
	aheadRawBytes = 4 << 20
	aheadBytes    = 8 << 20
)

// NewDecoder returns a decoder that decodes ahead. Close waits for its goroutines.
func (a Ahead) NewDecoder(raw io.Reader, rawOffset int64) (Decoder, error) {
	return &aheadDecoder{Ahead: a, cutter: cutter{walk: a.NewWalk(raw, rawOffset)}}, nil
}

type aheadDecoder struct {
	Ahead
	cutter  cutter
	current *aheadMember
	queue   []*aheadMember // after current, in order; all but the last are being decoded
	offset  int64          // of the member to which Next moved last
	err     error
	spare   []*aheadMember // for reuse of their buffers
}

// aheadMember is one member between the cutter and the reader.
type aheadMember struct {
	offset int64
	cut    error  // the cutter's error, if it returned no member
	raw    []byte // its bytes
	open   bool   // there are more bytes, which the cutter reads
	memory int64  // taken by its decoder
	taken  int64  // from the room
	held   bool   // whether room was taken

	done    chan struct{} // closed when the goroutine has ended; nil if there is none
	decoder Decoder       // nil once it is closed, and before it is needed
	out     []byte        // decoded by the goroutine
	most    int           // bound of len(out)
	at      int           // how much of out has been read
	end     error         // what follows out; nil: continue with decoder
}

// Next implements Decoder.
func (d *aheadDecoder) Next() (int64, error) {
	if d.err == nil && d.current != nil {
		_, d.err = io.Copy(io.Discard, onlyReader{d})
	}
	if d.err != nil {
		return 0, d.err
	}
	d.err = d.begin()
	return d.offset, d.err
}

// onlyReader hides all methods of a decoder except Read.
type onlyReader struct{ d *aheadDecoder }

func (o onlyReader) Read(p []byte) (int, error) { return o.d.Read(p) }

// begin moves to the next member.
func (d *aheadDecoder) begin() error {
	if len(d.queue) == 0 {
		d.cutNext()
	}
	m := d.queue[0]
	d.queue = d.queue[:copy(d.queue, d.queue[1:])]
	d.current, d.offset = m, m.offset
	if m.cut != nil {
		return m.cut
	}
	if m.held { // decoding in turn may wait for room, so nothing after it may hold any
		d.fill()
	}
	if m.done != nil {
		<-m.done
		return nil
	}
	codec, raw := Codec(d.MemberCodec), io.Reader(bytes.NewReader(m.raw))
	if !m.held {
		codec = d.InTurn
	}
	if m.open {
		raw = io.MultiReader(raw, &d.cutter)
		m.raw = nil // these MiB are now referenced only by the reader, which frees them once they are read
	}
	return m.start(codec, raw)
}

// start makes the member's decoder.
func (m *aheadMember) start(codec Codec, raw io.Reader) (err error) {
	if m.decoder, err = codec.NewDecoder(raw, m.offset); err == nil {
		_, err = m.decoder.Next()
	}
	return err
}

// fill cuts the following members and starts decoding them, as long as there is room.
func (d *aheadDecoder) fill() {
	last := d.current
	if n := len(d.queue); n > 0 {
		last = d.queue[n-1]
	}
	for last.cut == nil && last.held && !last.open {
		last = d.cutNext()
		if last.cut == nil && last.held && !last.open {
			last.most = int(min(d.cutter.walk.DecodedBytes(), aheadBytes))
			last.done = make(chan struct{})
			go last.run(d.MemberCodec)
		}
	}
}

// cutNext appends the next member of the file to the queue.
func (d *aheadDecoder) cutNext() *aheadMember {
	m := &aheadMember{}
	if n := len(d.spare); n > 0 {
		m, d.spare = d.spare[n-1], d.spare[:n-1]
	}
	d.queue = append(d.queue, m)
	if m.offset, m.cut = d.cutter.next(); m.cut != nil {
		return m
	}
	m.raw, m.open = readMember(m.raw[:0], &d.cutter)
	m.memory = d.cutter.walk.DecoderBytes()
	m.taken = m.memory + int64(len(m.raw)) + min(d.cutter.walk.DecodedBytes(), aheadBytes)
	if m.held = !m.open && d.Room.TryTake(m.taken); !m.held {
		d.spare = nil // other shards need the memory more
	}
	return m
}

// readMember appends to p the bytes of a member, up to aheadRawBytes. open means that there may be
// more, or an error.
func readMember(p []byte, c *cutter) (raw []byte, open bool) {
	for len(p) < aheadRawBytes {
		if len(p) == cap(p) {
			p = slices.Grow(p, max(16<<10, cap(p)))
		}
		n, err := c.Read(p[len(p):min(cap(p), aheadRawBytes)])
		p = p[:len(p)+n]
		if err != nil {
			return p, err != io.EOF
		}
	}
	return p, true
}

// run decodes the member into out, on a goroutine of its own.
func (m *aheadMember) run(codec Codec) {
	defer close(m.done)
	m.end = m.start(codec, bytes.NewReader(m.raw))
	for m.end == nil && len(m.out) < m.most {
		if len(m.out) == cap(m.out) {
			m.out = slices.Grow(m.out, min(m.most-len(m.out), max(16<<10, len(m.out))))
		}
		var n int
		n, m.end = m.decoder.Read(m.out[len(m.out):min(m.most, cap(m.out))])
		m.out = m.out[:len(m.out)+n]
	}
	if m.end != nil {
		m.close()
	}
}

func (m *aheadMember) close() {
	if m.decoder != nil {
		m.decoder.Close()
		m.decoder = nil
	}
}

// Read implements Decoder.
func (d *aheadDecoder) Read(p []byte) (n int, err error) {
	m := d.current
	switch {
	case d.err != nil:
		return 0, d.err
	case m == nil:
		return 0, io.EOF
	case m.at < len(m.out):
		n = copy(p, m.out[m.at:])
		m.at += n
		return n, nil
	case m.decoder != nil:
		n, err = m.decoder.Read(p)
	default:
		err = m.end
	}
	if err == io.EOF {
		d.current = nil
		d.drop(m)
	} else {
		d.err = err
	}
	return n, err
}

// drop releases what a member holds.
func (d *aheadDecoder) drop(m *aheadMember) {
	if m.done != nil {
		<-m.done
	}
	m.close()
	if m.held {
		d.Room.Give(m.taken)
	}
	d.spare = append(d.spare, &aheadMember{raw: m.raw[:0], out: m.out[:0]})
}

// MemoryBytes implements Decoder.
func (d *aheadDecoder) MemoryBytes() int64 {
	all := int64(rawBufferBytes)
	for _, m := range append(d.queue[:len(d.queue):len(d.queue)], d.current) {
		if m != nil {
			all += m.taken
		}
	}
	return all
}

// MemberBytes implements Measured.
func (d *aheadDecoder) MemberBytes() int64 { return d.current.memory }

var errAheadClosed = errors.New("decoder is closed")

// Close implements Decoder.
func (d *aheadDecoder) Close() {
	if d.cutter.walk == nil {
		return
	}
	if d.current != nil {
		d.drop(d.current)
	}
	for _, m := range d.queue {
		d.drop(m)
	}
	d.cutter.walk.Close()
	d.cutter.walk, d.current, d.queue, d.spare, d.err = nil, nil, nil, nil, errAheadClosed
}

// cutter reads members as they are in the file. If a member's end can't be determined, it ends with
// the file: a decoder of these bytes finds the same damage as in the file.
type cutter struct {
	walk Walk
	in   bool  // there is a current member
	rest bool  // its end can't be determined
	err  error // of next
}

// next moves to the next member. It skips the rest of the previous one.
func (c *cutter) next() (rawOffset int64, err error) {
	if c.err == nil && c.in {
		_, c.err = io.Copy(io.Discard, c)
	}
	if c.err == nil {
		rawOffset, c.err = c.walk.Next()
		c.in, c.rest = c.err == nil, false
	}
	return rawOffset, c.err
}

// Read returns io.EOF at the member's end. Other errors are read errors.
func (c *cutter) Read(p []byte) (n int, err error) {
	raw := c.walk.Raw()
	switch {
	case !c.in:
		return 0, io.EOF
	case c.rest:
		n, err = raw.Buffer().Read(p)
	default:
		n, err = c.walk.Read(p)
		c.rest = err != nil && err != io.EOF
	}
	switch {
	case raw.Failure() != nil && err != nil:
		return n, raw.Failure()
	case err == io.EOF:
		c.in = false
		return n, err
	}
	return n, nil
}
