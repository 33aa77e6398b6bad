package zarr

import (
	"math"
	"strings"
)

// Chain says how the stored bytes of a brick become its elements: first Steps, in this order,
// then the elements lie as Order says, in the byte order of the array's Type. Package codec
// carries out the steps.
type Chain struct {
	Steps []Step
	// Order is a permutation of the dimensions: axis i of the decoded bytes, which are in C
	// order, is dimension Order[i] of the array. nil is 0, 1, 2, …
	Order []int
}

// Codec names a step.
type Codec string

// The codecs.
const (
	Blosc Codec = "blosc"
	Zstd  Codec = "zstd"
	Gzip  Codec = "gzip"
	Zlib  Codec = "zlib"
	// LZ4 is the number of decoded bytes, u32le, and one block.
	LZ4   Codec = "lz4"
	Bzip2 Codec = "bz2"
	// CRC32C and Fletcher32 take a checksum of 4 bytes from the end and check it.
	CRC32C     Codec = "crc32c"
	Fletcher32 Codec = "fletcher32"
	// Shuffle puts together the bytes of elements of ItemBytes: first come the first bytes
	// of all elements. A rest of bytes stays as it is.
	Shuffle Codec = "shuffle"
	// Delta is the first element and differences: they are added up, and wrap.
	Delta Codec = "delta"
	// FixedScaleOffset is x/Scale + Offset, cast: in float32 if From is one, else in float64.
	FixedScaleOffset Codec = "fixedscaleoffset"
	// Quantize is a cast.
	Quantize Codec = "quantize"
)

// Step is one thing to undo.
type Step struct {
	Codec Codec
	// ItemBytes is the size of Shuffle's elements.
	ItemBytes int
	// From and To are the types before and after Delta, FixedScaleOffset and Quantize.
	From, To      Number
	Scale, Offset float64
}

// Number is a type of numbers: Kind is 'i', 'u' or 'f'.
type Number struct {
	Kind  byte
	Bytes int
	Big   bool
}

// compresses says whether the size of a step's input does not follow from that of its output.
func (c Codec) compresses() bool {
	switch c {
	case Blosc, Zstd, Gzip, Zlib, LZ4, Bzip2:
		return true
	}
	return false
}

// Raw says that the stored bytes are the elements.
func (c Chain) Raw() bool { return len(c.Steps) == 0 }

// Blocks says that bricks are buffers of blosc and nothing else, whose blocks can be decoded
// singly.
func (c Chain) Blocks() bool { return len(c.Steps) == 1 && c.Steps[0].Codec == Blosc }

// Size is the size of the bytes between two steps.
type Size struct {
	Bytes int64
	// Exact says that there are so many; otherwise there may be fewer.
	Exact bool
}

// maxCompressing bounds the compressing codecs of a chain: each doubles what a brick may have between
// two of them (Bound), and decoders have memory for that.
const maxCompressing = 2

// Bound is the most bytes that a compressed brick of decodedBytes may have. Compressors that
// cannot compress add a little.
func Bound(decodedBytes int64) int64 { return 2*decodedBytes + 64<<10 }

// Sizes are those of the stored bytes, and of what each step makes of them; so there is one
// more than there are steps, and the last is brickBytes. What differs is damage.
func (c Chain) Sizes(brickBytes int64) []Size {
	sizes := make([]Size, len(c.Steps)+1)
	want := Size{brickBytes, true}
	for i := len(c.Steps); i >= 0; i-- {
		sizes[i] = want
		if i == 0 {
			break
		}
		switch s := c.Steps[i-1]; {
		case s.Codec.compresses():
			want = Size{Bound(want.Bytes), false}
		case s.Codec == CRC32C || s.Codec == Fletcher32:
			want.Bytes += 4
		case s.From != s.To:
			// Bricks are whole elements.
			want.Bytes = want.Bytes / int64(s.To.Bytes) * int64(s.From.Bytes)
		}
	}
	return sizes
}

// filter reads the codecs that both versions have in the same words, those of numcodecs. It
// returns false where there is nothing to undo. order gives numbers their byte order: nil
// for what the codec says itself.
func filter(p *problems, place, id string, members []member, order *bool) (Step, bool) {
	switch id {
	case "blosc", "zstd", "gzip", "zlib", "lz4", "bz2":
		// Their settings are for encoding. What decoding needs is in the data.
		return Step{Codec: Codec(id)}, true
	case "crc32c", "fletcher32":
		c := config(p, place, members, "id", "location")
		if v, ok := c["location"]; ok && !v.is("end") {
			p.add(join(place, "location"), `must be "end", is %s`, v.shown())
		}
		return Step{Codec: Codec(id)}, true
	case "bitround":
		return Step{}, false
	case "shuffle":
		c := config(p, place, members, "id", "elementsize")
		s := Step{Codec: Shuffle, ItemBytes: 4}
		if v, ok := c["elementsize"]; ok {
			n, err := v.integer(1, 1<<16)
			if err != nil {
				p.add(join(place, "elementsize"), "%v", err)
			}
			s.ItemBytes = int(n)
		}
		return s, s.ItemBytes > 1
	case "delta":
		return betweenNumbers(p, place, Delta, config(p, place, members, "id", "dtype", "astype"), order)
	case "quantize":
		s, ok := betweenNumbers(p, place, Quantize, config(p, place, members, "id", "digits", "dtype", "astype"), order)
		return s, ok && s.To != s.From
	case "fixedscaleoffset":
		c := config(p, place, members, "id", "offset", "scale", "dtype", "astype")
		s, ok := betweenNumbers(p, place, FixedScaleOffset, c, order)
		s.Scale, s.Offset = factor(p, place, c, "scale"), factor(p, place, c, "offset")
		return s, ok
	}
	if strings.Contains(place, "filters") {
		p.add(place, "codec %q is not supported: rewrite the array without it", id)
	} else {
		p.add(place, "codec %q is not supported: rewrite the array with blosc, zstd or gzip", id)
	}
	return Step{}, false
}

// betweenNumbers is a codec of elements. It is false where its types can't be read: nothing more is to
// be found out of what lies beside it then.
func betweenNumbers(p *problems, place string, codec Codec, c map[string]value, order *bool) (s Step, ok bool) {
	s.Codec = codec
	if s.To, ok = number(p, place, "dtype", c["dtype"], order); !ok {
		return s, false
	}
	s.From = s.To
	if v, given := c["astype"]; given && !v.isNull() {
		if s.From, ok = number(p, place, "astype", v, order); !ok {
			return s, false
		}
	}
	return s, s.checkNumbers(p, place)
}

// number is a type that a codec of elements decodes to, or from.
func number(p *problems, place, name string, v value, order *bool) (one Number, ok bool) {
	if v == nil {
		p.add(join(place, name), "is missing")
		return one, false
	}
	s, err := v.text()
	d := Dtype{}
	if err == nil {
		d, err = typeString(s)
	}
	if err != nil {
		p.add(join(place, name), "%v", err)
		return one, false
	}
	switch d.class {
	case anInt:
		one.Kind = 'i'
	case aUint, aBool:
		one.Kind = 'u'
	case aFloat:
		one.Kind = 'f'
	default:
		p.add(join(place, name), "must be a type of numbers, is %q", s)
		return one, false
	}
	one.Bytes, one.Big = d.ItemBytes, d.Big()
	if order != nil {
		one.Big = *order && one.Bytes > 1
	}
	return one, true
}

// checkNumbers reports whether a codec goes between its types here, and notes it where it does not.
func (s Step) checkNumbers(p *problems, place string) bool {
	half := s.From.Kind == 'f' && s.From.Bytes == 2 || s.To.Kind == 'f' && s.To.Bytes == 2
	sameKind := (s.From.Kind == 'f') == (s.To.Kind == 'f') && (s.From.Kind != 'f' || s.From.Bytes == s.To.Bytes)
	floats := s.From.Kind == 'f' && s.To.Kind == 'f'
	switch {
	case s.Codec == Delta && !half && sameKind, s.Codec == Quantize && (s.From == s.To || !half && floats), s.Codec == FixedScaleOffset && !half:
	default:
		p.add(place, "%s between these types is not supported: rewrite the array without it", s.Codec)
		return false
	}
	return true
}

// factor is a finite number.
func factor(p *problems, place string, c map[string]value, name string) float64 {
	v, ok := c[name]
	if !ok {
		p.add(join(place, name), "is missing")
		return 1
	}
	bits, err := numberBits(v, aFloat, 8)
	x := math.Float64frombits(bits)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || name == "scale" && x == 0 {
		p.add(join(place, name), "must be a number, is %s", v.shown())
		return 1
	}
	return x
}

// checkItems notes a chain whose last step makes elements of another size than the array's, or
// whose steps don't fit together.
func (c Chain) checkItems(p *problems, place string, itemBytes int) {
	var last *Number
	compressing := 0
	for i := range c.Steps {
		s := &c.Steps[i]
		if s.Codec.compresses() {
			compressing++
		}
		if s.To.Bytes == 0 {
			continue
		}
		if last != nil && last.Bytes != s.From.Bytes {
			p.add(place, "one codec makes numbers of %d bytes, and the next one reads numbers of %d", last.Bytes, s.From.Bytes)
		}
		last = &s.To
	}
	if compressing > maxCompressing {
		p.add(place, "%d codecs compress, one after the other, and at most %d are read: rewrite the array with one", compressing, maxCompressing)
	}
	if last != nil && last.Bytes != itemBytes {
		p.add(place, "the codecs make numbers of %d bytes, and the array's elements have %d", last.Bytes, itemBytes)
	}
}
