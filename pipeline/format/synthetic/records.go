package synthetic

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
)

const tarBlock = 512

// sample appends a WebDataset sample of two members.
func (m *maker) sample(n uint64) {
	// Two headers, a block of the label, half a block of padding on average.
	payload := max(m.size()-3*tarBlock-tarBlock/2, 1)
	m.member(n, ".jpg", payload)
	m.random(payload, ^uint64(0))
	m.pad(payload)
	label := strconv.AppendUint(nil, m.pcg.Uint64()%1000, 10)
	m.member(n, ".cls", len(label))
	m.buffer = append(m.buffer, label...)
	m.pad(len(label))
}

// member appends a ustar header.
func (m *maker) member(n uint64, ending string, size int) {
	begin := len(m.buffer)
	m.zeros(tarBlock)
	h := m.buffer[begin:]
	copy(h[0:100], fmt.Appendf(nil, "%09d%s", n, ending))
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	copy(h[124:], fmt.Appendf(nil, "%011o\x00", size))
	copy(h[136:], "00000000000\x00")
	copy(h[148:], "        ") // the checksum counts itself as spaces
	h[156] = '0'
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Appendf(nil, "%06o\x00 ", sum))
}

// pad pads the last block of size bytes.
func (m *maker) pad(size int) { m.zeros(-size & (tarBlock - 1)) }

func (m *maker) zeros(n int) {
	begin := len(m.buffer)
	m.buffer = slices.Grow(m.buffer, n)[:begin+n]
	clear(m.buffer[begin:])
}

// frame appends a TFRecord frame.
func (m *maker) frame() {
	data := max(m.size()-16, 1)
	m.buffer = binary.LittleEndian.AppendUint64(m.buffer, uint64(data))
	m.buffer = binary.LittleEndian.AppendUint32(m.buffer, masked(m.buffer))
	begin := len(m.buffer)
	m.random(data, ^uint64(0))
	m.buffer = binary.LittleEndian.AppendUint32(m.buffer, masked(m.buffer[begin:]))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns TFRecord's checksum.
func masked(p []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(p, castagnoli), -15) + 0xa282ead8
}

// fixed appends a record of fixed size: its number, and bytes whose upper halves are 0, so that it
// compresses to about half.
func (m *maker) fixed(n uint64) {
	m.buffer = binary.LittleEndian.AppendUint64(m.buffer, n)
	m.random(int(m.shape.RecordBytes)-8, 0x0f0f0f0f0f0f0f0f)
}

// vocabulary is some thousand words and phrases, and a table that maps random numbers to them: word
// i is about as frequent as 1/i, as in natural languages. It is the same for all seeds.
type vocabulary struct {
	words [wordCount]string // each followed by a space
	drawn [1 << 16]uint16   // by 16 random bits
}

const (
	wordCount      = 8192
	maxPhraseBytes = 48
)

func newVocabulary() *vocabulary {
	v := &vocabulary{}
	pcg := rand.NewPCG(1, 2)
	for i := range v.words {
		// Frequent words are short.
		w := make([]byte, 2+i*6/wordCount+int(pcg.Uint64()%4))
		for k := range w {
			w[k] = "etaoinshrdlucmfwypvbgkjqxz"[min(pcg.Uint64()%26, pcg.Uint64()%26)]
		}
		v.words[i] = string(w) + " "
		if i > 16 && i%3 == 0 { // a phrase
			v.words[i] = v.words[pcg.Uint64()%uint64(i)] + v.words[pcg.Uint64()%uint64(i)] + v.words[i-1]
			v.words[i] = v.words[i][max(len(v.words[i])-maxPhraseBytes, 0):]
		}
	}
	// The sum of 1/i up to n is about log n: divide it into equal shares.
	for k := range v.drawn {
		v.drawn[k] = uint16(min(math.Exp(float64(k)/(1<<16)*math.Log(wordCount))-1, wordCount-1))
	}
	return v
}

// line appends a JSON line. Words consist of lower-case letters, so nothing needs escaping.
func (m *maker) line(n uint64) {
	end := m.size()
	m.buffer = append(m.buffer, `{"id":`...)
	m.buffer = strconv.AppendUint(m.buffer, n, 10)
	m.buffer = append(m.buffer, `,"text":"`...)
	const tail = "\"}\n"
	head := len(m.buffer)
	for end -= len(tail); len(m.buffer) < end; {
		for v, k := m.pcg.Uint64(), 0; k < 4; k++ {
			m.buffer = append(m.buffer, m.words.words[m.words.drawn[uint16(v)]]...)
			v >>= 16
		}
	}
	m.buffer = append(m.buffer[:max(end, head)], tail...)
}

// A frame of version 6, in the layout of package lc0.
const (
	// FrameBytes is the size of a frame of lc0.
	FrameBytes = 8356
	lc0Moves   = 1858
	// GameFrames is the length of an lc0 game in frames: a long game, of 1.5 MB.
	GameFrames = 180
)

// writeGames writes frames as one game, or as a tar of games of GameFrames.
func (s Shape) writeGames(out io.Writer, first, count uint64, made func(bytes int64)) error {
	m := newMaker(s)
	if s.Codec == "gz" {
		return m.writeGame(out, first, count, made)
	}
	var packed bytes.Buffer
	head := newMaker(s)
	for end := first + count; first < end; {
		n := min(GameFrames-first%GameFrames, end-first)
		packed.Reset()
		if err := m.writeGame(&packed, first, n, made); err != nil {
			return err
		}
		head.buffer = head.buffer[:0]
		head.member(first/GameFrames, ".gz", packed.Len())
		size := len(head.buffer) + packed.Len()
		head.buffer = append(head.buffer, packed.Bytes()...)
		head.pad(size)
		if _, err := out.Write(head.buffer); err != nil {
			return err
		}
		first += n
	}
	_, err := out.Write(make([]byte, 2*tarBlock))
	return err
}

// writeGame writes frames as one gzip member. The standard library's encoder finds matches like
// zlib, with which lc0 writes its games: at the same size, the stream of another encoder takes up
// to twice as long to decode.
func (m *maker) writeGame(out io.Writer, first, count uint64, made func(bytes int64)) error {
	z, err := gzip.NewWriterLevel(out, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	for i := range count {
		if _, err := z.Write(m.record(first + i)); err != nil {
			return err
		}
		if made != nil {
			made(FrameBytes)
		}
	}
	return z.Close()
}

// board has the squares of one colour's pieces, a bit each, for six kinds of piece, from White's
// side.
type board [2][6]uint64

var startingBoard = board{
	{0xff00, 0x42, 0x24, 0x81, 0x08, 0x10},
	{0xff << 48, 0x42 << 56, 0x24 << 56, 0x81 << 56, 0x08 << 56, 0x10 << 56},
}

// game appends frame n. Frames of one game show the same pieces moving, as seen by the side to
// move, so that they compress like those of real games, to about a 20th.
func (m *maker) game(n uint64) {
	const history = 8
	ply := n % GameFrames
	var boards [history]board
	moves := rand.NewPCG(m.shape.Seed^0x6c63302f67616d65, n/GameFrames)
	b := startingBoard
	boards[0] = b
	for p := range ply {
		b.move(moves, int(p&1))
		boards[(p+1)%history] = b
	}
	begin := len(m.buffer)
	m.zeros(FrameBytes)
	f := m.buffer[begin:]
	binary.LittleEndian.PutUint32(f, 6)
	binary.LittleEndian.PutUint32(f[4:], 1)
	played := m.policy(f[8:])
	planes := f[8+4*lc0Moves:]
	for i := range min(ply+1, history) {
		old := boards[(ply-i)%history]
		old.put(planes[i*13*8:], int(ply&1))
	}
	m.verdict(f[8272:], n, ply, played)
}

// move puts one piece on another square.
func (b *board) move(r *rand.PCG, side int) {
	v := r.Uint64()
	for i := range uint64(6) {
		kind := (v + i) % 6
		if b[side][kind] == 0 {
			continue
		}
		from := b[side][kind] & -b[side][kind]
		to := uint64(1) << (v >> 8 & 63)
		b[side][kind] &^= from
		for k := range b[1-side] {
			if k != 5 { // kings stay
				b[1-side][k] &^= to
			}
		}
		b[side][kind] |= to
		return
	}
}

// put writes the 12 planes of a position, as seen by the side to move.
func (b *board) put(planes []byte, side int) {
	for i := range 12 {
		plane := b[(side+i/6)&1][i%6]
		if side == 1 {
			plane = bits.ReverseBytes64(plane)
		}
		binary.LittleEndian.PutUint64(planes[8*i:], plane)
	}
}

// policy writes the shares of some moves, and -1 for those that are not legal.
func (m *maker) policy(f []byte) (played uint64) {
	for i := range lc0Moves {
		binary.LittleEndian.PutUint32(f[4*i:], math.Float32bits(-1))
	}
	legal := 20 + m.pcg.Uint64()%24
	for range legal {
		v := m.pcg.Uint64()
		played = v % lc0Moves
		share := float32(v>>40) / (1 << 24)
		binary.LittleEndian.PutUint32(f[4*played:], math.Float32bits(share*share/float32(legal)))
	}
	return played
}

// verdict writes what follows the planes: castling, counters, values.
func (m *maker) verdict(f []byte, n, ply, played uint64) {
	if ply < 30 {
		copy(f, "\x01\x01\x01\x01")
	}
	f[4], f[5] = byte(ply&1), byte(ply%20)
	value := func(at int, v float32) { binary.LittleEndian.PutUint32(f[8+4*at:], math.Float32bits(v)) }
	unit := func() float32 { return float32(m.pcg.Uint64()>>40) / (1 << 24) }
	for at := range 15 {
		value(at, unit())
	}
	value(6, float32(GameFrames-ply))
	value(7, float32(int(n/GameFrames%3)-1)) // result_q
	value(8, 0)
	binary.LittleEndian.PutUint32(f[68:], 800)
	binary.LittleEndian.PutUint16(f[72:], uint16(played))
	binary.LittleEndian.PutUint16(f[74:], uint16(played))
	value(17, unit())
}
