package zarr

import (
	"math"
	"strings"
)

// Chain describes how the stored bytes of a chunk become its elements: apply Steps in order; the
// result has the elements in the layout given by Order, in the byte order of the array's Type.
// Package codec carries out the steps.
type Chain struct {
	Steps []Step
	// Order is a permutation of the dimensions: axis i of the decoded bytes, which are in C order,
	// is dimension Order[i] of the array. nil means 0, 1, 2, …
	Order []int
}

// Codec is the name of a step.
type Codec string

// The codecs.
const (
	Blosc Codec = "blosc"
	Zstd  Codec = "zstd"
	Gzip  Codec = "gzip"
	Zlib  Codec = "zlib"
	// LZ4 is the decoded size as a u32le, followed by one block.
	LZ4   Codec = "lz4"
	Bzip2 Codec = "bz2"
	// CRC32C and Fletcher32 remove a checksum of 4 bytes from the end and verify it.
	CRC32C     Codec = "crc32c"
	Fletcher32 Codec = "fletcher32"
	// Shuffle puts the bytes of elements of ItemBytes back together: the input has the first bytes
	// of all elements first. Remaining bytes stay as they are.
	Shuffle Codec = "shuffle"
	// Delta is the first element followed by differences, which are added up with wraparound.
	Delta Codec = "delta"
	// FixedScaleOffset is x/Scale + Offset, cast: computed in float32 if From is float32, else in
	// float64.
	FixedScaleOffset Codec = "fixedscaleoffset"
	// Quantize is a cast.
	Quantize Codec = "quantize"
)

// Step is one operation of decoding.
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

// compresses reports whether the size of a step's input can't be computed from that of its output.
func (c Codec) compresses() bool {
	switch c {
	case Blosc, Zstd, Gzip, Zlib, LZ4, Bzip2:
		return true
	}
	return false
}

// Raw reports whether the stored bytes are the elements.
func (c Chain) Raw() bool { return len(c.Steps) == 0 }

// Blocks reports whether chunks are plain blosc buffers, whose blocks can be decoded separately.
func (c Chain) Blocks() bool { return len(c.Steps) == 1 && c.Steps[0].Codec == Blosc }

// Size is the size of the bytes between two steps.
type Size struct {
	Bytes int64
	// Exact means that Bytes is the exact size; otherwise it is a bound.
	Exact bool
}

// maxCompressing bounds the compressing codecs of a chain: each doubles the bound of a chunk's size
// before it (Bound), and decoders need memory for that.
const maxCompressing = 2

// Bound returns the most bytes that a compressed chunk of decodedBytes may have. Compressors add a
// little to incompressible data.
func Bound(decodedBytes int64) int64 { return 2*decodedBytes + 64<<10 }

// Sizes returns the sizes of the stored bytes and of the output of each step, so one more than
// there are steps; the last is chunkBytes. A chunk with other sizes is damaged.
func (c Chain) Sizes(chunkBytes int64) []Size {
	sizes := make([]Size, len(c.Steps)+1)
	want := Size{chunkBytes, true}
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
			// Chunks hold whole elements.
			want.Bytes = want.Bytes / int64(s.To.Bytes) * int64(s.From.Bytes)
		}
	}
	return sizes
}

// filter reads the codecs that both versions describe in the same way, those of numcodecs. It
// returns false if there is nothing to undo. order overrides the byte order of numbers; nil leaves
// it to the codec's own types.
func filter(p *problems, place, id string, members []member, order *bool) (Step, bool) {
	switch id {
	case "blosc", "zstd", "gzip", "zlib", "lz4", "bz2":
		// Their settings are for encoding. The data holds what decoding needs.
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

// betweenNumbers reads a codec of elements. It returns false if the types can't be read: other
// settings can't be checked then.
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

// number reads a type that a codec of elements decodes to or from.
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

// checkNumbers reports whether a codec is supported between its types, and adds a problem if it
// isn't.
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

// factor reads a finite number.
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

// checkItems adds a problem if the last step makes elements of another size than the array's, or if
// steps don't fit together.
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
