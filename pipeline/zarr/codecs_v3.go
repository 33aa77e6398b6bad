package zarr

import (
	"fmt"
	"slices"
	"strings"
)

// coded is one codec of a v3 document.
type coded struct {
	place, name string
	members     []member
}

// codecList reads a list of codecs.
func codecList(p *problems, place string, v value) ([]coded, bool) {
	items, err := v.list(maxCodecs)
	if err != nil {
		p.add(place, "%v", err)
		return nil, false
	}
	list := make([]coded, len(items))
	for i, item := range items {
		c := coded{place: fmt.Sprintf("%s[%d]", place, i)}
		if c.name, c.members, err = item.extension(); err != nil {
			p.add(c.place, "%v", err)
			return nil, false
		}
		c.name = codecName(c.name)
		list[i] = c
	}
	return list, true
}

// codecName returns the canonical name of a codec: "endian" is what bytes was called until 2023,
// and the codecs of package numcodecs are written with or without a prefix, or as a URL.
func codecName(name string) string {
	name = strings.TrimPrefix(name, "https://codec.zarr.dev/")
	for _, prefix := range []string{"numcodecs.", "numcodecs/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && slices.Contains(slices.Concat(bytesCodecs, arrayCodecs), rest) {
			return rest
		}
	}
	if name == "endian" {
		return "bytes"
	}
	return name
}

// bytesCodecs map bytes to bytes, and arrayCodecs an array to an array, besides transpose.
var (
	bytesCodecs = []string{"blosc", "gzip", "zstd", "crc32c", "zlib", "lz4", "bz2", "shuffle", "fletcher32"}
	arrayCodecs = []string{"delta", "fixedscaleoffset", "bitround", "quantize"}
)

func (c coded) isArrayCodec() bool {
	return c.name == "transpose" || slices.Contains(arrayCodecs, c.name)
}

// readCodecs reads the codecs of objects with edges a.Chunk: sharding, which it recurses into, or
// the codecs of chunks.
func (a *Array) readCodecs(p *problems, place string, v value) {
	list, ok := codecList(p, place, v)
	if !ok {
		return
	}
	at := slices.IndexFunc(list, func(c coded) bool { return c.name == "sharding_indexed" })
	if at < 0 {
		a.readChain(p, place, list)
		return
	}
	if at > 0 || len(list) > 1 {
		p.add(place, "codecs before or after sharding_indexed are not supported: put them into its own codecs")
		return
	}
	a.readSharding(p, list[0])
}

// readSharding reads one level of sharding and its contents.
func (a *Array) readSharding(p *problems, c coded) {
	place := c.place + ".configuration"
	if len(a.Levels) == MaxLevels {
		p.add(c.place, "sharding is nested more than %d deep", MaxLevels)
		return
	}
	m := config(p, place, c.members, "chunk_shape", "codecs", "index_codecs", "index_location")
	for _, name := range []string{"chunk_shape", "codecs", "index_codecs"} {
		if m[name] == nil {
			p.add(join(place, name), "is missing")
			return
		}
	}
	l := Level{Object: a.Chunk}
	if v, ok := m["index_location"]; ok {
		switch {
		case v.is("start"):
			l.AtStart = true
		case v.is("end"):
		default:
			p.add(place+".index_location", `must be "start" or "end", is %s`, v.shown())
		}
	}
	l.readIndexCodecs(p, place+".index_codecs", m["index_codecs"])
	if l.Chunk = edges(p, place+".chunk_shape", m["chunk_shape"], len(a.Shape)); l.Chunk == nil {
		return
	}
	for i := range l.Chunk {
		if l.Object[i]%l.Chunk[i] != 0 {
			p.add(place+".chunk_shape", "the edge %d of dimension %d does not divide %d, the edge of the chunk around it", l.Chunk[i], i, l.Object[i])
			return
		}
	}
	if _, ok := productUpTo(MaxIndexEntries, l.counts()...); !ok {
		p.add(place+".chunk_shape", "makes more than %d chunks a shard: use larger chunks or smaller shards", MaxIndexEntries)
		return
	}
	a.Levels, a.Chunk = append(a.Levels, l), l.Chunk
	if _, ok := productUpTo(MaxIndexEntries, (Level{Object: a.Object, Chunk: a.Chunk}).counts()...); !ok {
		p.add(place+".chunk_shape", "makes more than %d chunks a file: use larger chunks or smaller shards", MaxIndexEntries)
		return
	}
	a.readCodecs(p, place+".codecs", m["codecs"])
}

// readIndexCodecs reads how an index is encoded: bytes, and optionally crc32c, so that its size is
// known.
func (l *Level) readIndexCodecs(p *problems, place string, v value) {
	list, ok := codecList(p, place, v)
	if !ok {
		return
	}
	if len(list) == 0 || list[0].name != "bytes" || len(list) > 2 || len(list) == 2 && list[1].name != "crc32c" {
		p.add(place, "must be bytes, or bytes and crc32c, so that the index has a known size")
		return
	}
	l.Checksum = len(list) == 2
	l.Big = bigEndian(p, list[0], true)
}

// bigEndian reads the codec bytes, which must specify a byte order if needed is true.
func bigEndian(p *problems, c coded, needed bool) bool {
	place := c.place + ".configuration"
	m := config(p, place, c.members, "endian")
	switch v, ok := m["endian"]; {
	case (!ok || v.isNull()) && needed:
		p.add(place+".endian", "is missing, and elements have more than one byte")
	case !ok || v.isNull() || v.is("little"):
	case v.is("big"):
		return true
	default:
		p.add(place+".endian", `must be "little" or "big", is %s`, v.shown())
	}
	return false
}

// littleEndian is the bytes codec of a chain without one: zarrita writes such chains, and reads
// them this way.
var littleEndian = coded{name: "bytes", members: []member{{"endian", value(`"little"`)}}}

// readChain reads the codecs of chunks.
func (a *Array) readChain(p *problems, place string, list []coded) {
	at := slices.IndexFunc(list, func(c coded) bool { return c.name == "bytes" })
	if at < 0 {
		at = slices.IndexFunc(list, func(c coded) bool { return !c.isArrayCodec() })
		if at < 0 {
			at = len(list)
		}
		for _, c := range list[at:] {
			if !slices.Contains(bytesCodecs, c.name) {
				p.add(c.place, "codec %q is not supported: rewrite the array with bytes, and blosc, zstd or gzip", c.name)
				return
			}
		}
		list = slices.Insert(list, at, littleEndian)
	}
	// From last to first, the order of decoding.
	for i := len(list) - 1; i > at; i-- {
		a.addBytesCodec(p, list[i])
	}
	unit := 1
	for _, u := range a.Type.Units {
		unit = max(unit, u.Bytes)
	}
	// If a codec of elements comes before it, the stored elements may have one byte.
	cast := slices.ContainsFunc(list[:at], func(c coded) bool { return c.name != "transpose" })
	big := bigEndian(p, list[at], unit > 1 && !cast)
	a.Type = a.Type.withOrder(big)
	a.Chain.Order = nil
	for i := at - 1; i >= 0; i-- {
		a.addArrayCodec(p, list[i], big)
	}
	a.Chain.checkItems(p, place, a.Type.ItemBytes)
}

// addBytesCodec adds a codec that maps bytes to bytes.
func (a *Array) addBytesCodec(p *problems, c coded) {
	if !slices.Contains(bytesCodecs, c.name) {
		p.add(c.place, "codec %q is not supported: rewrite the array with blosc, zstd or gzip", c.name)
		return
	}
	if s, ok := filter(p, c.place, c.name, c.members, nil); ok {
		a.Chain.Steps = append(a.Chain.Steps, s)
	}
}

// addArrayCodec adds a codec that maps an array to an array. big is the stored byte order.
func (a *Array) addArrayCodec(p *problems, c coded, big bool) {
	if c.name == "transpose" {
		a.addTranspose(p, c)
		return
	}
	if !c.isArrayCodec() {
		p.add(c.place, "codec %q is not supported: rewrite the array without it", c.name)
		return
	}
	s, ok := filter(p, c.place, c.name, c.members, &big)
	if !ok {
		return
	}
	if a.Chain.Order != nil && s.Codec == Delta {
		p.add(c.place, "differences that are taken before a transpose are not supported: rewrite the array without one of the two")
		return
	}
	a.Chain.Steps = append(a.Chain.Steps, s)
}

// addTranspose composes a transposition with those read so far, which are nearer to the bytes.
func (a *Array) addTranspose(p *problems, c coded) {
	place := c.place + ".configuration"
	m := config(p, place, c.members, "order")
	v := m["order"]
	if v == nil {
		p.add(place+".order", "is missing")
		return
	}
	order, err := v.integers(0, int64(len(a.Shape))-1)
	if err != nil || len(order) != len(a.Shape) {
		p.add(place+".order", "must be the numbers from 0 to %d in some order, is %s", len(a.Shape)-1, v.shown())
		return
	}
	seen := make([]bool, len(order))
	for _, d := range order {
		if seen[d] {
			p.add(place+".order", "has %d twice", d)
			return
		}
		seen[d] = true
	}
	composed := make([]int, len(order))
	for i := range composed {
		inner := i
		if a.Chain.Order != nil {
			inner = a.Chain.Order[i]
		}
		composed[i] = int(order[inner])
	}
	a.Chain.Order = composed
}
