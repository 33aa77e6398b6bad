package zarr

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// kindText is the canonical JSON of a kind: members are sorted by name, and only "as" is optional:
// it is there if elements are converted.
type kindText struct {
	Begins  []int64     `json:"a"`
	Arrays  []kindArray `json:"arrays"`
	As      *kindAs     `json:"as,omitempty"`
	Ends    []int64     `json:"b"` // -1: the cubes differ
	Chunk   []int64     `json:"brick"`
	Dims    []string    `json:"dims"`
	Edge    string      `json:"edge"`
	Jitter  bool        `json:"jitter"`
	Kept    string      `json:"kept"`
	List    string      `json:"list"`
	Missing string      `json:"missing"`
	Strides []int64     `json:"s"`
	Stack   bool        `json:"stack"`
	Wrap    []bool      `json:"wrap"`
}

// kindArray is [name, path, descr, c, k, select, fill] of a field: descr in the syntax of npy
// headers, c and k the crop and its step, select a list of places or null for each dimension, and
// the bytes of the fill value in hex.
type kindArray struct {
	name, path, descr string
	crop, step        []int64
	places            [][]int64
	fill              string
}

func (a kindArray) MarshalJSON() ([]byte, error) {
	return plainJSON([]any{a.name, a.path, a.descr, a.crop, a.step, a.places, a.fill})
}

func (a *kindArray) UnmarshalJSON(b []byte) error {
	list := []any{&a.name, &a.path, &a.descr, &a.crop, &a.step, &a.places, &a.fill}
	n := len(list)
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) != n {
		return fmt.Errorf("an array has %d entries, not %d", len(list), n)
	}
	return nil
}

// plainJSON encodes JSON without needless escapes: characters that HTML uses, and U+2028 and
// U+2029, which package json always escapes and writers in other languages don't.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return unescapeSeparators(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), err
}

// unescapeSeparators replaces the escapes of U+2028 and U+2029 in JSON by the characters. The
// result reuses b.
func unescapeSeparators(b []byte) []byte {
	out := b[:0] // never longer than the part of b that was read
	for i := 0; i < len(b); i++ {
		switch rest := b[i:]; {
		case bytes.HasPrefix(rest, []byte(`\u2028`)), bytes.HasPrefix(rest, []byte(`\u2029`)):
			out = append(out, 0xe2, 0x80, 0xa0+rest[5]-'0')
			i += 5
		case b[i] == '\\' && len(rest) > 1:
			out = append(out, rest[0], rest[1])
			i++
		default:
			out = append(out, b[i])
		}
	}
	return out
}

// canonical returns the kind of a cut.
func (c *Cut) canonical() (string, error) {
	k := kindText{
		Begins: []int64{}, Ends: []int64{}, Chunk: []int64{}, Dims: []string{}, Strides: []int64{}, Wrap: []bool{},
		Edge: "drop", Jitter: c.asked.Jitter, Kept: c.keptSum(), Missing: string(c.asked.Missing.Or()), Stack: c.asked.Stack,
	}
	if c.asked.Cover {
		k.Edge = "cover"
	}
	if c.list != nil {
		k.List = c.list.SHA256
	}
	for d, a := range c.axes {
		k.Begins, k.Ends, k.Chunk = append(k.Begins, a.Begin), append(k.Ends, a.End), append(k.Chunk, a.Edge)
		k.Strides, k.Wrap = append(k.Strides, a.Stride), append(k.Wrap, a.Wrap)
		name := ""
		if c.dims != nil {
			name = c.dims[d]
		}
		k.Dims = append(k.Dims, name)
	}
	for i := range c.fields {
		f := &c.fields[i]
		places := f.kindPlaces()
		fill := hex.EncodeToString(f.Array.Fill)
		if f.packing != nil {
			if k.As == nil {
				k.As = &kindAs{}
			}
			k.As.arrays = append(k.As.arrays, f.packing.kind(fill))
			fill = ""
		}
		k.Arrays = append(k.Arrays, kindArray{f.Name, f.Path, f.elementType().Descr, f.counts(), f.steps(), places, fill})
	}
	b, err := plainJSON(k)
	if err == nil && len(b) > MaxKindBytes {
		err = fmt.Errorf("what the records depend on takes %d bytes as text: at most %d are stored; read fewer arrays together, or fewer single places", len(b), MaxKindBytes)
	}
	return string(b), err
}

// kindPlaces returns the places of crops along each dimension, nil if they follow from the rest of
// a kind. "a" and "b" are those of the first field, so they don't determine where crops begin along
// a dimension that it lacks.
func (f *cutField) kindPlaces() [][]int64 {
	list := make([][]int64, len(f.axes))
	for d, a := range f.axes {
		switch {
		case f.places != nil && f.places[d] != nil:
			list[d] = f.places[d]
		case f.of[d] < 0 && a.Begin > 0:
			for j := range min(a.Crop, MaxKindBytes) { // longer lists are refused
				list[d] = append(list[d], a.Begin+j*a.Step)
			}
		}
	}
	return list
}

// MaxKindBytes bounds a kind.
const MaxKindBytes = 96 << 10

func parseKind(text string) (k kindText, err error) {
	if len(text) > MaxKindBytes {
		return k, fmt.Errorf("it has %d bytes", len(text))
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return k, err
	}
	if int(d.InputOffset()) != len(text) {
		return k, errors.New("something follows it")
	}
	if again, err := plainJSON(k); err != nil || string(again) != text {
		return k, errors.New("it is not in its canonical form")
	}
	return k, nil
}

// SameKind reports whether crops of cubes of two kinds may be in one stream. They may differ only
// in the ends of their regions, in what is left out, and, if elements are converted, in what is
// stored and how it is converted.
func SameKind(a, b string) bool {
	x, errX := parseKind(a)
	y, errY := parseKind(b)
	if errX != nil || errY != nil || len(x.Ends) != len(y.Ends) {
		return false
	}
	if (x.As == nil) != (y.As == nil) {
		return false
	}
	x.Ends, y.Ends, x.Kept, y.Kept, x.As, y.As = nil, nil, "", "", nil, nil
	t, _ := plainJSON(x)
	u, _ := plainJSON(y)
	return bytes.Equal(t, u)
}

// MixedKind returns the kind of several cubes whose kinds are the same according to SameKind: ends
// of regions that differ are -1, and conversions that differ are replaced by a hash.
func MixedKind(kinds []string) string {
	mixed, err := parseKind(kinds[0])
	if err != nil {
		return kinds[0]
	}
	ends, all := slices.Clone(mixed.Ends), []kindText{mixed}
	as := []*kindAs{mixed.As}
	for _, text := range kinds[1:] {
		k, err := parseKind(text)
		if err != nil || len(k.Ends) != len(ends) {
			return kinds[0]
		}
		as = append(as, k.As)
		for d := range ends {
			if k.Ends[d] != mixed.Ends[d] {
				ends[d] = -1
			}
		}
		all = append(all, k)
	}
	mixed.Ends, mixed.As = ends, mixedAs(as)
	if len(all) > 1 {
		mixed.Kept = mixedKept(all)
	}
	b, err := plainJSON(mixed)
	if err != nil {
		return kinds[0]
	}
	return string(b)
}

// KindField describes a field's crops in a kind.
type KindField struct {
	Name, Descr string
	Crop        []int64
}

// FieldsOf returns the fields of a kind, and whether they are stacked.
func FieldsOf(kind string) (fields []KindField, stack bool, err error) {
	k, err := parseKind(kind)
	if err != nil {
		return nil, false, err
	}
	if len(k.Arrays) == 0 {
		return nil, false, errors.New("it has no array")
	}
	for _, a := range k.Arrays {
		fields = append(fields, KindField{a.name, a.descr, a.crop})
	}
	return fields, k.Stack, nil
}

// kindAs describes how the elements of records are computed, with an entry for each array. For
// several cubes in which that differs it is a text instead: the SHA-256, in hex, of the distinct
// values as JSON, each followed by a newline, in the order of the cubes in which they first occur.
type kindAs struct {
	arrays []kindPacking
	mixed  string
}

func (a kindAs) MarshalJSON() ([]byte, error) {
	if a.mixed != "" {
		return plainJSON(a.mixed)
	}
	return plainJSON(a.arrays)
}

func (a *kindAs) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &a.mixed)
	}
	return json.Unmarshal(b, &a.arrays)
}

// kindPacking is [descr, fill, scale, offset, missing] of an array: the type that elements are
// taken as, in the syntax of npy headers, the fill value before it is converted, and Packing's
// numbers. All numbers are little-endian and in hex.
type kindPacking struct {
	descr, fill, scale, offset string
	missing                    []string
}

func (p kindPacking) MarshalJSON() ([]byte, error) {
	return plainJSON([]any{p.descr, p.fill, p.scale, p.offset, p.missing})
}

func (p *kindPacking) UnmarshalJSON(b []byte) error {
	list := []any{&p.descr, &p.fill, &p.scale, &p.offset, &p.missing}
	n := len(list)
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) != n {
		return fmt.Errorf("a conversion has %d entries, not %d", len(list), n)
	}
	return nil
}

// kind returns the entry of p and the fill value in a kind.
func (p *Packing) kind(fill string) kindPacking {
	bits := func(x float32) string {
		return hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
	}
	k := kindPacking{p.Type.Descr, fill, bits(p.Scale), bits(p.Offset), []string{}}
	for _, m := range p.Missing {
		k.missing = append(k.missing, hex.EncodeToString(m))
	}
	return k
}

// mixedAs returns the member of several cubes; nil if nothing is converted.
func mixedAs(list []*kindAs) *kindAs {
	var texts []string
	for _, a := range list {
		if a == nil {
			return nil
		}
		b, err := plainJSON(a)
		if text := string(b); err == nil && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return list[0]
	}
	var all bytes.Buffer
	for _, text := range texts {
		all.WriteString(text + "\n")
	}
	sum := sha256.Sum256(all.Bytes())
	return &kindAs{mixed: hex.EncodeToString(sum[:])}
}

// Differences describes, in terms of flags, how crops of a kind differ from those of a previous
// one: "--crop of data is 4,16,8, and was 4,16,16". It returns "" if one is not a kind, or if both
// are the same.
func Differences(is, was string) string {
	x, errX := parseKind(is)
	y, errY := parseKind(was)
	if errX != nil || errY != nil {
		return ""
	}
	var words []string
	add := func(what string, is, was any) {
		if !reflect.DeepEqual(is, was) {
			words = append(words, fmt.Sprintf("%s is %s, and was %s", what, shown(is), shown(was)))
		}
	}
	add("the dimensions' names", x.Dims, y.Dims)
	add("the arrays (--array)", x.names(), y.names())
	if slices.Equal(x.names(), y.names()) {
		for i, a := range x.Arrays {
			b, of := y.Arrays[i], cmp.Or(a.name, "the array")
			add("--crop of "+of, a.crop, b.crop)
			add("--step of "+of, a.step, b.step)
			add("--select, places of "+of, a.places, b.places)
			add("the type of "+of, a.descr, b.descr)
			add("the fill value of "+of+" (hex)", a.fill, b.fill)
		}
	}
	add("--stride", x.Strides, y.Strides)
	add("the region (--select) begins at", x.Begins, y.Begins)
	add("the region (--select, or the array) ends at", x.Ends, y.Ends)
	add("the chunks' edges", x.Chunk, y.Chunk)
	add("--wrap", x.Wrap, y.Wrap)
	add("--edge", x.Edge, y.Edge)
	add("--jitter", x.Jitter, y.Jitter)
	add("the file of --crops (sha256)", x.List, y.List)
	add("--missing", x.Missing, y.Missing)
	add("what --missing and --on-corrupt leave out (sha256)", x.Kept, y.Kept)
	add("--stack", x.Stack, y.Stack)
	if !reflect.DeepEqual(x.As, y.As) {
		words = append(words, "--as, --scale or --offset, or the attributes that they come from, are others")
	}
	return strings.Join(words, "; ")
}

// names returns the names of the arrays, with their paths if they differ.
func (k *kindText) names() []string {
	list := make([]string, len(k.Arrays))
	for i, a := range k.Arrays {
		if list[i] = a.name; a.name != a.path {
			list[i] = a.name + "=" + a.path
		}
	}
	return list
}

// shown formats a member of a kind for a message.
func shown(v any) string {
	const most = 80
	text := fmt.Sprint(v)
	switch v := v.(type) {
	case string:
		text = cmp.Or(v, "none")
	case []int64, []string, []bool:
		text = strings.Join(strings.Fields(strings.Trim(text, "[]")), ",")
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
