package read

import (
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
)

// dryIndex is an index whose codecs return dry decoders, and counts these.
type dryIndex struct {
	chunkmap.Index
	codecs []dryCodec // of each shard; the zero value for uncompressed ones

	mu     sync.Mutex
	opened uint64   // decoders
	begun  []uint64 // one bit per shard: a decoder was opened
	shards uint64   // with at least one decoder
}

func newDryIndex(x chunkmap.Index) *dryIndex {
	d := &dryIndex{Index: x, codecs: make([]dryCodec, x.Shards()), begun: make([]uint64, (x.Shards()+63)/64)}
	for i := range d.codecs {
		if codec := x.Shard(i).Codec; codec != nil {
			d.codecs[i] = dryCodec{codec, d, i}
		}
	}
	return d
}

// Shard implements chunkmap.Index.
func (d *dryIndex) Shard(i int) catalog.Shard {
	s := d.Index.Shard(i)
	if s.Codec != nil {
		s.Codec = &d.codecs[i]
	}
	return s
}

func (d *dryIndex) open(shard int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened++
	if w, bit := &d.begun[shard/64], uint64(1)<<(shard%64); *w&bit == 0 {
		*w |= bit
		d.shards++
	}
}

// decoders returns how many decoders were opened so far, and for how many shards.
func (d *dryIndex) decoders() (opened, shards uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened, d.shards
}

// dryCodec makes dry decoders of one shard.
type dryCodec struct {
	format.Codec
	of    *dryIndex
	shard int
}

var _ format.PointCodec = (*dryCodec)(nil)

// NewDecoder implements format.Codec. If several members begin at rawOffset's position in the
// decoded shard, all but one are empty, so it doesn't matter which of them it is.
func (c *dryCodec) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	return c.decoder(raw, c.firstByte(rawOffset)), nil
}

// NewDecoderAt implements format.PointCodec.
func (c *dryCodec) NewDecoderAt(raw io.Reader, p format.Point) (format.Decoder, error) {
	return c.decoder(raw, p.DecodedBytes), nil
}

func (c *dryCodec) decoder(raw io.Reader, pos int64) *dryDecoder {
	c.of.open(c.shard)
	s := c.of.Index.Shard(c.shard)
	memory := s.DecoderBytes
	if memory == 0 {
		memory = max(choose.DecoderBytesOf(s.Codec.Name(), s.DecodedBytes, s.Members)-choose.BesideDecoderBytes, 0)
	}
	return &dryDecoder{codec: c, raw: raw, pos: pos, decodedBytes: s.DecodedBytes, rawBytes: s.Object.SizeBytes, memoryBytes: memory, blockBytes: blockBytes(s.Codec.Name())}
}

// blockBytes returns how many bytes a decoder of a codec decodes at a time: RFC 8878's maximum for
// a zstd block, and the default of the lz4 command.
func blockBytes(codec string) int64 {
	switch codec {
	case "zstd":
		return 128 << 10
	case "lz4":
		return 4 << 20
	}
	return 1
}

// firstByte returns the position in the decoded shard of the last entry whose bytes in the file
// begin at or before rawOffset.
func (c *dryCodec) firstByte(rawOffset int64) int64 {
	size := c.of.Index.Shard(c.shard).DecodedBytes
	next, _ := c.of.firstEntry(c.shard, 0, size, func(e format.Entry) bool { return e.RawBytes > rawOffset })
	return c.of.Entry(c.shard, max(next-1, 0)).DecodedBytes
}

// firstEntry searches the decoded bytes from … to-1 of a shard for the first whose entry is good.
// Entries of all later bytes must be good, too. It returns the byte and its entry, or to if there
// is none. It looks at nearby bytes first.
func (d *dryIndex) firstEntry(shard int, from, to int64, good func(format.Entry) bool) (int64, format.Entry) {
	bad, step := from-1, int64(4<<10)
	for bad+step < to && !good(d.Entry(shard, bad+step)) {
		bad += step
		step *= 2
	}
	end := min(bad+step, to) // good, or to
	for bad+1 < end {
		if middle := bad + (end-bad)/2; good(d.Entry(shard, middle)) {
			end = middle
		} else {
			bad = middle
		}
	}
	if end >= to {
		return to, format.Entry{}
	}
	return end, d.Entry(shard, end)
}

// unread is what a dry decoder reads to: reads of a dry run leave it as it is (options.Dry). So it
// takes address space, and no memory.
var unread = sync.OnceValue(func() []byte { return make([]byte, 1<<20) })

// dryDecoder advances through the members of a shard as they are in the index, and skips their
// bytes in the file. Between two places at which decoding can begin, it skips the same amount for
// each decoded byte. It writes nothing to the buffers that it "decodes" to.
//
//	index     │ member          point           member        end
//	decoded   ├─────────┬────────┼───────────────┼─────────────┤
//	                   pos      end
//	file      ├───┬──────────────┼───────┼───────┤
//	              └ rawPos      rawEnd
type dryDecoder struct {
	codec                  *dryCodec
	raw                    io.Reader
	decodedBytes, rawBytes int64 // of the shard
	memoryBytes            int64
	blockBytes             int64 // decoded bytes that a real decoder decodes at a time

	pos, rawPos int64 // rawPos is how much of the file has been skipped
	// The stretch that pos is in, once there is one. It ends at the next entry.
	begin, end       int64
	rawBegin, rawEnd int64
	memberEnds       bool // at end
}

// Next implements format.Decoder.
func (d *dryDecoder) Next() (int64, error) {
	if d.pos >= d.decodedBytes {
		return 0, io.EOF
	}
	e := d.codec.of.Entry(d.codec.shard, d.pos)
	if d.end == 0 { // the first
		d.rawPos = e.RawBytes
	}
	return e.RawBytes, d.stretch(e)
}

// stretch begins the stretch of an entry, at whose position the decoder is.
func (d *dryDecoder) stretch(e format.Entry) error {
	x := d.codec.of
	d.begin, d.rawBegin = e.DecodedBytes, e.RawBytes
	next, after := x.firstEntry(d.codec.shard, d.pos+1, d.decodedBytes, func(o format.Entry) bool { return o.DecodedBytes > e.DecodedBytes })
	d.end, d.rawEnd, d.memberEnds = next, after.RawBytes, after.Point == 0
	if next == d.decodedBytes {
		d.rawEnd = d.rawBytes
	}
	if x.Shard(d.codec.shard).Parts {
		// What follows the last part is not needed, and not known.
		if part := x.Part(d.codec.shard, d.pos); part.EndRawBytes > 0 {
			d.rawEnd = part.EndRawBytes
		}
	}
	return d.take(d.rawBegin)
}

// Read implements format.Decoder.
func (d *dryDecoder) Read(p []byte) (int, error) {
	if d.pos == d.end {
		if d.memberEnds {
			return 0, io.EOF
		}
		if err := d.stretch(d.codec.of.Entry(d.codec.shard, d.pos)); err != nil {
			return 0, err
		}
	}
	n := min(int64(len(p)), d.end-d.pos)
	d.pos += n
	read := (d.pos - d.begin + d.blockBytes - 1) / d.blockBytes * d.blockBytes
	share := float64(min(read, d.end-d.begin)) / float64(d.end-d.begin)
	return int(n), d.take(d.rawBegin + int64(share*float64(d.rawEnd-d.rawBegin)))
}

// take skips the file's bytes before to.
func (d *dryDecoder) take(to int64) error {
	for d.rawPos < to {
		skipped := unread()
		n, err := d.raw.Read(skipped[:min(to-d.rawPos, int64(len(skipped)))])
		if err != nil {
			return err
		}
		d.rawPos += int64(n)
	}
	return nil
}

// MemoryBytes implements format.Decoder. It returns what a real decoder of the shard would hold;
// this one holds nothing.
func (d *dryDecoder) MemoryBytes() int64 { return d.memoryBytes }

// Close implements format.Decoder.
func (d *dryDecoder) Close() {}
