package zarr

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ParseV3 reads the zarr.json of an array. path is for errors, which are *Error.
func ParseV3(path string, doc []byte) (*Array, error) {
	p := &problems{document: path}
	members, ok := openObject(p, doc)
	if !ok {
		return nil, p.err()
	}
	m := map[string]value{}
	for _, one := range members {
		m[one.name] = one.value
		if !slices.Contains(membersV3, one.name) && !ignorable(one.value) {
			p.add(one.name, "is unknown, and must be understood: this array needs a newer lsiofs")
		}
	}
	if !isVersion(p, m, 3) || !isNode(p, m, "array") {
		return nil, p.err()
	}
	for _, name := range membersV3[:8] {
		if m[name] == nil {
			p.add(name, "is missing")
		}
	}
	if missingAny(m) {
		return nil, p.err()
	}
	a := &Array{}
	a.readV3(p, m)
	if err := p.err(); err != nil {
		return nil, err
	}
	return a, nil
}

// membersV3 are the members of an array's document; the first 8 are required.
var membersV3 = []string{
	"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
	"attributes", "storage_transformers", "dimension_names",
}

func missingAny(m map[string]value) bool {
	return slices.ContainsFunc(membersV3[:8], func(name string) bool { return m[name] == nil })
}

// openObject returns the members of a document, or adds a problem.
func openObject(p *problems, doc []byte) ([]member, bool) {
	v, err := open(doc)
	if err == nil {
		var members []member
		if members, err = v.object(); err == nil {
			return members, true
		}
	}
	p.add("", "%v", err)
	return nil, false
}

// ignorable reports whether an unknown member is marked as safe to ignore.
func ignorable(v value) bool {
	members, err := v.object()
	return err == nil && slices.ContainsFunc(members, func(m member) bool {
		return m.name == "must_understand" && m.value.isFalse()
	})
}

// isVersion adds a problem if a document has another version.
func isVersion(p *problems, m map[string]value, version int64) bool {
	v := m["zarr_format"]
	if v == nil {
		p.add("zarr_format", "is missing")
		return false
	}
	if !v.isNumber(version) {
		p.add("zarr_format", "must be %d in this file, is %s", version, v.shown())
		return false
	}
	return true
}

// isNode adds a problem if a document is not an array, or not a group.
func isNode(p *problems, m map[string]value, kind string) bool {
	if v := m["node_type"]; v == nil || !v.is(kind) {
		got := "missing"
		if v != nil {
			got = v.shown()
		}
		p.add("node_type", "must be %q, is %s", kind, got)
		return false
	}
	return true
}

// readV3 fills in a from m, which has all required members.
func (a *Array) readV3(p *problems, m map[string]value) {
	var err error
	if a.Shape, err = m["shape"].integers(0, MaxEdge-1); err != nil {
		p.add("shape", "%v", err)
	}
	if a.Type, err = dtypeV3(m["data_type"]); err != nil {
		p.add("data_type", "%v", err)
	} else if a.Fill, err = fillV3(m["fill_value"], a.Type); err != nil {
		p.add("fill_value", "%v", err)
	}
	if v, ok := m["storage_transformers"]; ok && !v.isNull() {
		if list, err := v.list(maxCodecs); err != nil || len(list) > 0 {
			p.add("storage_transformers", "are not supported: rewrite the array without them")
		}
	}
	if v, ok := m["attributes"]; ok && !v.isNull() {
		a.Attributes = attributes(p, "attributes", v)
	}
	if v, ok := m["dimension_names"]; ok && !v.isNull() {
		a.Dims = a.names(p, "dimension_names", v)
	}
	a.readKeys(p, m["chunk_key_encoding"])
	dims := -1
	if a.Shape != nil {
		dims = len(a.Shape)
	}
	a.Object = gridV3(p, m["chunk_grid"], dims)
	if a.Object == nil || a.Shape == nil || a.Type.ItemBytes == 0 {
		return
	}
	a.Chunk = a.Object
	a.readCodecs(p, "codecs", m["codecs"])
	a.checkSizes(p, "chunk_grid")
}

// attributes returns a JSON object in which values that JSON doesn't have are strings.
func attributes(p *problems, place string, v value) []byte {
	if v[0] != '{' {
		p.add(place, "must be an object, is %s", v.kind())
		return nil
	}
	return v.strict()
}

// names reads the dimensions' names: strings or null.
func (a *Array) names(p *problems, place string, v value) []string {
	list, err := v.list(MaxDims)
	if err != nil {
		p.add(place, "%v", err)
		return nil
	}
	if a.Shape != nil && len(list) != len(a.Shape) {
		p.add(place, "has %d names, and the array has %d dimensions", len(list), len(a.Shape))
		return nil
	}
	names := make([]string, len(list))
	for i, v := range list {
		if v.isNull() {
			continue
		}
		if names[i], err = v.text(); err == nil {
			err = checkName(names[i])
		}
		if err != nil {
			p.add(fmt.Sprintf("%s[%d]", place, i), "%v", err)
		}
	}
	if !slices.ContainsFunc(names, func(s string) bool { return s != "" }) {
		return nil
	}
	return names
}

// maxNameBytes bounds a dimension's name: it becomes a file name, which may have 255 bytes.
const maxNameBytes = 200

// checkName refuses the name of a dimension that can't be displayed or used as a file name.
func checkName(name string) error {
	if len(name) > maxNameBytes {
		return fmt.Errorf("is a name of %d bytes: at most %d are read: rename it", len(name), maxNameBytes)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }) {
		return fmt.Errorf("is %q, which has characters that can't be shown: rename it", name)
	}
	return nil
}

// gridV3 returns an object's edges.
func gridV3(p *problems, v value, dims int) []int64 {
	name, members, err := v.extension()
	switch {
	case err != nil:
		p.add("chunk_grid", "%v", err)
		return nil
	case name != "regular":
		p.add("chunk_grid", "grid %q is not supported: rewrite the array in chunks of one shape", name)
		return nil
	}
	c := config(p, "chunk_grid.configuration", members, "chunk_shape")
	if c["chunk_shape"] == nil {
		p.add("chunk_grid.configuration.chunk_shape", "is missing")
		return nil
	}
	return edges(p, "chunk_grid.configuration.chunk_shape", c["chunk_shape"], dims)
}

// readKeys reads the encoding of keys.
func (a *Array) readKeys(p *problems, v value) {
	const place = "chunk_key_encoding"
	name, members, err := v.extension()
	if err != nil {
		p.add(place, "%v", err)
		return
	}
	switch name {
	case "default":
		a.Keys = Keys{Prefixed: true, Separator: '/'}
	case "v2":
		a.Keys = Keys{Separator: '.'}
	default:
		p.add(place, "encoding %q is not supported: lsiofs knows default and v2", name)
		return
	}
	c := config(p, place+".configuration", members, "separator")
	if v, ok := c["separator"]; ok {
		a.Keys.Separator = separator(p, place+".configuration.separator", v)
	}
}

// separator reads a slash or a dot.
func separator(p *problems, place string, v value) byte {
	for _, s := range []string{"/", "."} {
		if v.is(s) {
			return s[0]
		}
	}
	p.add(place, `must be "/" or ".", is %s`, v.shown())
	return '.'
}

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
