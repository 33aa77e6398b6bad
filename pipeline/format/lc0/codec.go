package lc0

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// Game decodes a file that is one game: all of its gzip members are one part.
type Game struct{}

// Tar decodes a tar of games. Each regular file whose name ends in .gz is a part, which begins at
// the file's first header.
type Tar struct{}

var (
	_ format.PartCodec = Game{}
	_ format.PartCodec = Tar{}
)

// Name returns "lc0 game".
func (Game) Name() string { return "lc0 game" }

// Name returns "lc0 tar".
func (Tar) Name() string { return "lc0 tar" }

// NewDecoder is NewPartDecoder.
func (c Game) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	return c.NewPartDecoder(raw, rawOffset)
}

// NewDecoder is NewPartDecoder.
func (c Tar) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	return c.NewPartDecoder(raw, rawOffset)
}

// NewPartDecoder returns a decoder of a whole file.
func (Game) NewPartDecoder(raw io.Reader, rawOffset int64) (format.PartDecoder, error) {
	d := &gameDecoder{at: rawOffset}
	return d, d.gunzip.open(raw, rawOffset, rawOffset)
}

// NewPartDecoder returns a decoder of raw, which must begin at a member's first header.
func (Tar) NewPartDecoder(raw io.Reader, rawOffset int64) (format.PartDecoder, error) {
	d := &tarDecoder{raw: sources.Get().(*rawSource)}
	d.raw.reset(raw, rawOffset)
	d.members = tar.NewMembers(d.raw)
	return d, nil
}

// gunzip decodes the gzip members of one game, one after another.
type gunzip struct {
	members format.Decoder // nil: closed
	inside  bool
	begin   int64 // offset of the game in the file, for messages
	err     error
}

func (g *gunzip) open(raw io.Reader, rawOffset, begin int64) (err error) {
	g.close()
	g.inside, g.err, g.begin = false, nil, begin
	g.members, err = gzip.Codec{}.NewDecoder(raw, rawOffset)
	return err
}

func (g *gunzip) close() {
	if g.members != nil {
		g.members.Close()
		g.members = nil
	}
}

// Read reads the game's decoded bytes, and returns io.EOF at its end, after the checksums of all
// members were verified.
func (g *gunzip) Read(p []byte) (int, error) {
	for len(p) > 0 && g.err == nil {
		if !g.inside {
			if _, err := g.members.Next(); err != nil {
				g.fail(err)
				break
			}
			g.inside = true
		}
		n, err := g.members.Read(p)
		switch {
		case err == io.EOF:
			g.inside = false
		case err != nil:
			g.fail(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, g.err
}

// fail makes err sticky. Damage is attributed to the whole game.
func (g *gunzip) fail(err error) {
	if damage, ok := errors.AsType[*format.CorruptError](err); ok {
		placed := *damage
		placed.RawOffset = g.begin
		err = &placed
	}
	g.err = err
}

func (g *gunzip) memory() int64 {
	if g.members == nil {
		return 0
	}
	return g.members.MemoryBytes()
}

var errClosed = errors.New("lc0 decoder is closed")

// gameDecoder has one part.
type gameDecoder struct {
	gunzip gunzip
	at     int64
	state  int // 0: before the part, 1: in it, 2: after it
}

func (d *gameDecoder) Next() (int64, error) {
	if d.gunzip.members == nil {
		return 0, errClosed
	}
	if d.state < 2 {
		d.state++
	}
	if d.state == 2 {
		return d.at, io.EOF
	}
	return d.at, nil
}

func (d *gameDecoder) Read(p []byte) (int, error) {
	switch {
	case d.gunzip.members == nil:
		return 0, errClosed
	case d.state != 1:
		return 0, io.EOF
	}
	return d.gunzip.Read(p)
}

func (d *gameDecoder) PartName() string   { return "" }
func (d *gameDecoder) MemoryBytes() int64 { return d.gunzip.memory() }
func (d *gameDecoder) Close()             { d.gunzip.close() }

// tarDecoder iterates over a tar.
type tarDecoder struct {
	raw     *rawSource // nil: closed
	members tar.Members
	member  tar.Member
	data    io.LimitedReader // what is left of the current member
	gunzip  gunzip
	err     error // of the archive
}

var gz = []byte(".gz")

// isGame reports whether a member is a game.
func isGame(m tar.Member) bool {
	base := m.Path[bytes.LastIndexByte(m.Path, '/')+1:]
	return m.Regular && len(base) > len(gz) && bytes.HasSuffix(base, gz)
}

func (d *tarDecoder) Next() (int64, error) {
	if d.raw == nil {
		return 0, errClosed
	}
	for d.err == nil {
		d.endMember()
		// The reads below end when the reader's context ends.
		d.member, d.err = d.members.Next(context.Background())
		if d.err == nil && isGame(d.member) {
			d.data = io.LimitedReader{R: d.raw, N: d.member.SizeBytes}
			if d.err = d.gunzip.open(&d.data, d.raw.OffsetBytes(), d.member.StartBytes); d.err == nil {
				return d.member.StartBytes, nil
			}
		}
	}
	if damage, ok := errors.AsType[*format.CorruptError](d.err); ok && damage.RawOffset < 0 {
		placed := *damage
		placed.Record, placed.RawOffset = -1, placed.OffsetBytes
		d.err = &placed
	}
	return 0, d.err
}

// endMember reports to the walker how much of the current member has been read.
func (d *tarDecoder) endMember() {
	if d.gunzip.members != nil {
		d.gunzip.close()
		d.members.Consumed(d.member.SizeBytes - d.data.N)
	}
}

func (d *tarDecoder) Read(p []byte) (int, error) {
	switch {
	case d.raw == nil:
		return 0, errClosed
	case d.gunzip.members == nil:
		return 0, io.EOF
	}
	return d.gunzip.Read(p)
}

func (d *tarDecoder) PartName() string { return string(d.member.Path) }

func (d *tarDecoder) MemoryBytes() int64 { return int64(rawSourceBytes) + d.gunzip.memory() }

func (d *tarDecoder) Close() {
	if d.raw == nil {
		return
	}
	d.gunzip.close()
	d.raw.reset(nil, 0)
	sources.Put(d.raw)
	d.raw = nil
}

// sources are the rawSources that are not in use.
var sources = sync.Pool{New: func() any { return &rawSource{buf: make([]byte, rawSourceBytes)} }}

// rawSourceBytes is enough for some headers: games are read past it.
const rawSourceBytes = 16 << 10

// rawSource is a file as the walker's source, and as a reader of the data after the headers.
type rawSource struct {
	src        io.Reader
	buf        []byte
	start, end int   // buf[start:end] are the next bytes
	next       int64 // offset of buf[end]
	err        error // what follows buf[end]
}

func (r *rawSource) reset(src io.Reader, offset int64) {
	*r = rawSource{src: src, buf: r.buf, next: offset}
	if len(r.buf) > rawSourceBytes {
		r.buf = r.buf[:rawSourceBytes:rawSourceBytes]
	}
}

func (r *rawSource) OffsetBytes() int64 { return r.next - int64(r.end-r.start) }

func (r *rawSource) Window(min int) ([]byte, error) {
	for r.end-r.start < min && r.err == nil {
		if r.start > 0 {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.start = 0
		}
		if min > len(r.buf) {
			grown := make([]byte, min)
			copy(grown, r.buf[:r.end])
			r.buf = grown
		}
		r.end += r.read(r.buf[r.end:])
	}
	if r.end-r.start < min {
		return r.buf[r.start:r.end], r.err
	}
	return r.buf[r.start:r.end], nil
}

// read reads once from the file.
func (r *rawSource) read(p []byte) int {
	n, err := r.src.Read(p)
	r.next += int64(n)
	r.err = err
	return n
}

func (r *rawSource) Discard(n int64) error {
	for n > int64(r.end-r.start) {
		n -= int64(r.end - r.start)
		r.start, r.end = 0, 0
		if r.err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if r.err != nil {
			return r.err
		}
		r.end = r.read(r.buf)
	}
	r.start += int(n)
	return nil
}

// Read bypasses the buffer once that is empty.
func (r *rawSource) Read(p []byte) (int, error) {
	if r.start < r.end {
		n := copy(p, r.buf[r.start:r.end])
		r.start += n
		return n, nil
	}
	if r.err != nil {
		return 0, r.err
	}
	n := r.read(p)
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// SniffTarBytes is the range of a tar in which its first game must begin for the tar to be
// recognized as lc0's. It keeps other tars from being read through in search of a game.
const SniffTarBytes = 64 << 10

const (
	// sniffGames is how many games are tried, so that a single damaged one does not decide.
	sniffGames = 16
	// sniffGamesBytes bounds how many bytes of them are read.
	sniffGamesBytes = 4 << 20
)

// SniffRaw reports whether Sniff accepts one of the first games of a tar. A game that ends early
// must have whole frames. Errors are read errors.
func (f Format) SniffRaw(raw io.ReaderAt, sizeBytes int64) (bool, error) {
	failing := &failingReaderAt{raw: raw}
	at, ok := gameIn(failing, min(sizeBytes, SniffTarBytes))
	if !ok {
		return false, failing.err
	}
	d, err := Tar{}.NewPartDecoder(io.NewSectionReader(failing, at, min(sizeBytes-at, sniffGamesBytes)), at)
	if err != nil {
		return false, err
	}
	defer d.Close()
	head := make([]byte, format.SniffBytes)
	for range sniffGames {
		if _, err := d.Next(); err != nil {
			break
		}
		if f.isSound(d, head) {
			return true, nil
		}
	}
	return false, failing.err
}

// isSound reports whether the decoder's current part begins like a game, with whole frames if it
// ends. It reads into head.
func (f Format) isSound(d io.Reader, head []byte) bool {
	n, err := io.ReadFull(d, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF || !f.Sniff(head[:n]) {
		return false
	}
	return n == len(head) || int64(n)%frameBytes[binary.LittleEndian.Uint32(head)] == 0
}

// gameIn returns the offset of the first game within a tar's first bytes.
func gameIn(raw io.ReaderAt, sizeBytes int64) (int64, bool) {
	d, err := Tar{}.NewPartDecoder(io.NewSectionReader(raw, 0, sizeBytes), 0)
	if err != nil {
		return 0, false
	}
	defer d.Close()
	at, err := d.Next()
	return at, err == nil
}

// failingReaderAt remembers that the storage failed, so that the tar is not mistaken for one of
// something else.
type failingReaderAt struct {
	raw io.ReaderAt
	err error
}

func (f *failingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.raw.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}
