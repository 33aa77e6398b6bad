package parquet

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// field is a field of a schema of tests: a leaf, a struct, or a list in three levels.
type field struct {
	name     string
	optional bool
	list     *field
	fields   []*field
	phys     physical // of a leaf; physBytes is a string, physFixed one of 5 bytes
}

// A value is nil, an []any of a list or a struct, or that of a leaf: bool, int32, int64, float32,
// float64, or string (physBytes, physFixed).

// json returns a value as a line has it.
func (f *field) json(b *strings.Builder, v any) {
	switch x := v.(type) {
	case nil:
		b.WriteString("null")
	case []any:
		open, end := "[", "]"
		if f.list == nil {
			open, end = "{", "}"
		}
		b.WriteString(open)
		for i, e := range x {
			if i > 0 {
				b.WriteByte(',')
			}
			if f.list != nil {
				f.list.json(b, e)
			} else {
				b.WriteString(strconv.Quote(f.fields[i].name) + ":")
				f.fields[i].json(b, e)
			}
		}
		b.WriteString(end)
	case bool:
		b.WriteString(strconv.FormatBool(x))
	case int32:
		b.WriteString(strconv.Itoa(int(x)))
	case int64:
		b.WriteString(strconv.FormatInt(x, 10))
	case float32: // tests have small multiples of 1/2 only
		b.WriteString(strconv.FormatFloat(float64(x), 'f', 1, 32))
	case float64:
		b.WriteString(strconv.FormatFloat(x, 'f', 1, 64))
	case string:
		b.WriteString(strconv.Quote(x))
	}
}

// shredded is a leaf's levels and values.
type shredded struct {
	f              *field
	maxRep, maxDef uint8
	rep, def       []uint8
	values         []any
}

// shred appends a value to the leaves of f, of which it returns those that follow.
func (f *field) shred(leaves []*shredded, v any, rep, def, depth uint8) []*shredded {
	if f.optional && v != nil {
		def++
	}
	items, _ := v.([]any)
	switch {
	case f.list != nil && len(items) > 0:
		rest := leaves
		for i, e := range items {
			r := rep
			if i > 0 {
				r = depth + 1
			}
			rest = f.list.shred(leaves, e, r, def+1, depth+1)
		}
		return rest
	case f.list != nil:
		return f.list.shredNothing(leaves, rep, def)
	case f.fields != nil:
		for i, c := range f.fields {
			if v == nil {
				leaves = c.shredNothing(leaves, rep, def)
			} else {
				leaves = c.shred(leaves, items[i], rep, def, depth)
			}
		}
		return leaves
	}
	l := leaves[0]
	l.rep, l.def = append(l.rep, rep), append(l.def, def)
	if v != nil {
		l.values = append(l.values, v)
	}
	return leaves[1:]
}

// shredNothing appends levels for a value that is not there.
func (f *field) shredNothing(leaves []*shredded, rep, def uint8) []*shredded {
	if f.list != nil {
		return f.list.shredNothing(leaves, rep, def)
	}
	for _, c := range f.fields {
		leaves = c.shredNothing(leaves, rep, def)
	}
	if f.fields == nil {
		leaves[0].rep, leaves[0].def = append(leaves[0].rep, rep), append(leaves[0].def, def)
		leaves = leaves[1:]
	}
	return leaves
}

// schema appends the schema elements of f, and its leaves.
func (f *field) schema(w *thriftWriter, n *int, leaves *[]*shredded, rep, def uint8) {
	*n++
	kind := int64(required)
	if f.optional {
		kind = optional
		def++
	}
	w.begin()
	isLeaf := f.list == nil && f.fields == nil
	if isLeaf {
		w.i32(1, int64(f.phys))
		if f.phys == physFixed {
			w.i32(2, 5)
		}
	}
	w.i32(3, kind)
	w.binary(4, f.name)
	if !isLeaf {
		w.i32(5, int64(max(len(f.fields), 1)))
	}
	if f.list != nil {
		w.i32(6, 3)
	} else if isLeaf && (f.phys == physBytes || f.phys == physFixed) {
		w.i32(6, 0)
	}
	w.end()
	switch {
	case f.list != nil:
		*n++
		w.begin()
		w.i32(3, repeated)
		w.binary(4, "list")
		w.i32(5, 1)
		w.end()
		f.list.schema(w, n, leaves, rep+1, def+1)
	case isLeaf:
		*leaves = append(*leaves, &shredded{f: f, maxRep: rep, maxDef: def})
	}
	for _, c := range f.fields {
		c.schema(w, n, leaves, rep, def)
	}
}

// thriftWriter writes structs in the compact protocol.
type thriftWriter struct {
	b    []byte
	last []int16
}

func (w *thriftWriter) begin() { w.last = append(w.last, 0) }
func (w *thriftWriter) end()   { w.b = append(w.b, 0); w.last = w.last[:len(w.last)-1] }
func (w *thriftWriter) head(id int16, kind byte) {
	last := &w.last[len(w.last)-1]
	w.b = append(w.b, byte(id-*last)<<4|kind)
	*last = id
}
func (w *thriftWriter) zigzag(v int64) { w.b = binary.AppendVarint(w.b, v) }
func (w *thriftWriter) i32(id int16, v int64) {
	w.head(id, thriftI32)
	w.zigzag(v)
}
func (w *thriftWriter) i64(id int16, v int64) {
	w.head(id, thriftI64)
	w.zigzag(v)
}
func (w *thriftWriter) binary(id int16, v string) {
	w.head(id, thriftBinary)
	w.b = append(binary.AppendUvarint(w.b, uint64(len(v))), v...)
}
func (w *thriftWriter) list(id int16, kind byte, n int) {
	w.head(id, thriftList)
	w.b = binary.AppendUvarint(append(w.b, 0xf0|kind), uint64(n))
}
func (w *thriftWriter) object(id int16) { w.head(id, thriftStruct); w.begin() }

// fileWriter writes files as no sensible writer does: every page as draw has it.
type fileWriter struct {
	draw      *rand.Rand
	codec     codec
	pageMost  int
	pageBytes int  // above 0: PLAIN pages of version 1 of about this size, as sensible writers make them
	crc       bool // all pages have a CRC; else half of them
	encodings bool // others than PLAIN and dictionaries
	out       []byte
}

// write returns a file whose row groups have these rows.
func (w *fileWriter) write(root *field, groups [][]any) []byte {
	w.out = []byte(magic)
	var foot thriftWriter
	foot.begin()
	foot.i32(1, 2)
	n := 1
	var elements thriftWriter
	elements.begin()
	elements.begin()
	elements.binary(4, "schema")
	elements.i32(5, int64(len(root.fields)))
	elements.end()
	var leaves []*shredded
	for _, f := range root.fields {
		f.schema(&elements, &n, &leaves, 0, 0)
	}
	foot.list(2, thriftStruct, n)
	foot.b = append(foot.b, elements.b...)
	foot.i64(3, 0)
	foot.list(4, thriftStruct, len(groups))
	for _, rows := range groups {
		for _, l := range leaves {
			*l = shredded{f: l.f, maxRep: l.maxRep, maxDef: l.maxDef}
		}
		for _, r := range rows {
			root.shred(leaves, r, 0, 0, 0)
		}
		foot.begin()
		foot.list(1, thriftStruct, len(leaves))
		for _, l := range leaves {
			start := int64(len(w.out))
			dict, data := w.chunk(l)
			foot.begin()
			foot.i64(2, 0)
			foot.object(3)
			foot.i32(1, int64(l.f.phys))
			foot.i32(4, int64(w.codec))
			foot.i64(5, int64(len(l.def)))
			foot.i64(7, int64(len(w.out))-start)
			foot.i64(9, data)
			if dict > 0 {
				foot.i64(11, dict)
			}
			foot.end()
			foot.end()
		}
		foot.i64(3, int64(len(rows)))
		foot.end()
	}
	foot.end()
	w.out = append(w.out, foot.b...)
	w.out = binary.LittleEndian.AppendUint32(w.out, uint32(len(foot.b)))
	return append(w.out, magic...)
}

func (w *fileWriter) chunk(l *shredded) (dict, data int64) {
	if len(l.def) == 0 {
		return 0, 0
	}
	var distinct []any
	at := 0
	if w.pageBytes == 0 && l.f.phys != physBool && w.draw.IntN(2) == 0 {
		for _, v := range l.values {
			if !slices.Contains(distinct, v) {
				distinct = append(distinct, v)
			}
		}
		dict = int64(len(w.out))
		body := w.compress(plainOf(nil, l.f.phys, distinct))
		w.page(pageDictionary, body, len(plainOf(nil, l.f.phys, distinct)), func(t *thriftWriter) {
			t.object(7)
			t.i32(1, int64(len(distinct)))
			t.i32(2, int64(encPlain))
			t.end()
		})
	}
	data = int64(len(w.out))
	for from := 0; from < len(l.def); {
		n, v2 := 0, false
		if w.pageBytes > 0 {
			for size := 0; from+n < len(l.def) && size < w.pageBytes; n++ {
				size += 4 + len(plainOf(nil, l.f.phys, l.values[at+min(n, len(l.values)-at-1):][:1]))
			}
		} else {
			n = min(1+w.draw.IntN(w.pageMost), len(l.def)-from)
			v2 = w.draw.IntN(2) == 0
		}
		if v2 { // pages of version 2 end where rows end; so does the one before
			if l.rep[from] != 0 {
				v2 = false
			}
			for from+n < len(l.rep) && l.rep[from+n] != 0 {
				n++
			}
		}
		rep, def := l.rep[from:from+n], l.def[from:from+n]
		present := bytes.Count(def, []byte{l.maxDef})
		values := l.values[at:][:present]
		at += present
		from += n
		var enc encoding
		var body []byte
		if dict > 0 && w.draw.IntN(4) > 0 {
			enc = []encoding{encPlainDictionary, encRLEDictionary}[w.draw.IntN(2)]
			idx := make([]uint32, len(values))
			for i, v := range values {
				idx[i] = uint32(slices.Index(distinct, v))
			}
			width := bits.Len(uint(max(len(distinct), 1) - 1))
			width += w.draw.IntN(3)
			body = w.hybrid([]byte{byte(width)}, idx, width)
		} else {
			enc, body = w.values(l.f.phys, values)
		}
		repBytes, defBytes := w.levels(rep, l.maxRep), w.levels(def, l.maxDef)
		if !v2 {
			var all []byte
			for _, b := range [][]byte{repBytes, defBytes} {
				if b != nil {
					all = append(binary.LittleEndian.AppendUint32(all, uint32(len(b))), b...)
				}
			}
			all = append(all, body...)
			w.page(pageData, w.compress(all), len(all), func(t *thriftWriter) {
				t.object(5)
				t.i32(1, int64(n))
				t.i32(2, int64(enc))
				t.i32(3, int64(encRLE))
				t.i32(4, int64(encRLE))
				t.end()
			})
			continue
		}
		size := len(repBytes) + len(defBytes) + len(body)
		compressed := w.draw.IntN(3) > 0
		if compressed {
			body = w.compress(body)
		}
		w.page(pageDataV2, slices.Concat(repBytes, defBytes, body), size, func(t *thriftWriter) {
			t.object(8)
			t.i32(1, int64(n))
			t.i32(2, int64(n-present))
			t.i32(3, int64(bytes.Count(rep, []byte{0})))
			t.i32(4, int64(enc))
			t.i32(5, int64(len(defBytes)))
			t.i32(6, int64(len(repBytes)))
			if !compressed {
				t.head(7, thriftFalse)
			}
			t.end()
		})
	}
	return dict, data
}

func (w *fileWriter) page(kind int64, body []byte, size int, part func(t *thriftWriter)) {
	var t thriftWriter
	t.begin()
	t.i32(1, kind)
	t.i32(2, int64(size))
	t.i32(3, int64(len(body)))
	if w.crc || w.draw.IntN(2) == 0 {
		t.i32(4, int64(int32(crc32.ChecksumIEEE(body))))
	}
	part(&t)
	t.end()
	w.out = append(append(w.out, t.b...), body...)
}

func (w *fileWriter) levels(levels []uint8, most uint8) []byte {
	if most == 0 {
		return nil
	}
	wide := make([]uint32, len(levels))
	for i, v := range levels {
		wide[i] = uint32(v)
	}
	return w.hybrid([]byte{}, wide, bits.Len8(most))
}

// hybrid appends runs and packed groups.
func (w *fileWriter) hybrid(dst []byte, values []uint32, width int) []byte {
	for len(values) > 0 {
		run := 1
		for run < len(values) && values[run] == values[0] {
			run++
		}
		if run >= 8 || w.draw.IntN(3) == 0 {
			run = 1 + w.draw.IntN(run)
			dst = binary.AppendUvarint(dst, uint64(run)<<1)
			for i := range (width + 7) / 8 {
				dst = append(dst, byte(values[0]>>(8*i)))
			}
			values = values[run:]
			continue
		}
		groups := 1 + w.draw.IntN((len(values)+7)/8)
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		n := min(8*groups, len(values))
		wide := make([]uint64, 8*groups)
		for i, v := range values[:n] {
			wide[i] = uint64(v)
		}
		dst = pack(dst, wide, width)
		values = values[n:]
	}
	return dst
}

// pack appends values of width bits, the lowest bit first.
func pack(dst []byte, values []uint64, width int) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, (len(values)*width+7)/8)...)
	for i, v := range values {
		for b := range width {
			bit := i*width + b
			dst[at+bit/8] |= byte(v>>b&1) << (bit % 8)
		}
	}
	return dst
}

func (w *fileWriter) values(phys physical, values []any) (encoding, []byte) {
	which := 0
	if w.encodings {
		which = w.draw.IntN(4)
	}
	switch {
	case which == 0:
	case phys == physBool:
		wide := make([]uint32, len(values))
		for i, v := range values {
			if v == true {
				wide[i] = 1
			}
		}
		b := w.hybrid(nil, wide, 1)
		return encRLE, append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
	case which == 1 && (phys == physInt32 || phys == physInt64):
		ints := make([]int64, len(values))
		for i, v := range values {
			switch v := v.(type) {
			case int32:
				ints[i] = int64(v)
			case int64:
				ints[i] = v
			}
		}
		return encDelta, w.deltas(nil, ints, phys == physInt32)
	case which == 1 && phys == physBytes:
		var lengths []int64
		var text []byte
		for _, v := range values {
			lengths, text = append(lengths, int64(len(v.(string)))), append(text, v.(string)...)
		}
		return encDeltaLength, append(w.deltas(nil, lengths, true), text...)
	case which == 2 && (phys == physBytes || phys == physFixed):
		var prefixes, lengths []int64
		var text []byte
		last := ""
		for _, v := range values {
			s := v.(string)
			n := 0
			for n < min(len(s), len(last)) && s[n] == last[n] {
				n++
			}
			prefixes, lengths = append(prefixes, int64(n)), append(lengths, int64(len(s)-n))
			text = append(text, s[n:]...)
			last = s
		}
		return encDeltaBytes, append(w.deltas(w.deltas(nil, prefixes, true), lengths, true), text...)
	case phys != physBytes:
		b := plainOf(nil, phys, values)
		width := phys.width(5)
		out := make([]byte, 0, len(b))
		for k := range width {
			for i := range values {
				out = append(out, b[i*width+k])
			}
		}
		return encByteStreamSplit, out
	}
	return encPlain, plainOf(nil, phys, values)
}

// deltas appends DELTA_BINARY_PACKED; narrow means that differences wrap at 32 bits.
func (w *fileWriter) deltas(dst []byte, values []int64, narrow bool) []byte {
	minis := 4
	block := 128 * (1 + w.draw.IntN(2))
	dst = binary.AppendUvarint(dst, uint64(block))
	dst = binary.AppendUvarint(dst, uint64(minis))
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	if len(values) == 0 {
		return binary.AppendVarint(dst, 0)
	}
	dst = binary.AppendVarint(dst, values[0])
	var diffs []int64
	for i := 1; i < len(values); i++ {
		d := values[i] - values[i-1]
		if narrow {
			d = int64(int32(d))
		}
		diffs = append(diffs, d)
	}
	for len(diffs) > 0 {
		n := min(block, len(diffs))
		low := slices.Min(diffs[:n])
		dst = binary.AppendVarint(dst, low)
		head := len(dst)
		dst = append(dst, make([]byte, minis)...)
		for m := range minis {
			from, to := min(n, m*block/minis), min(n, (m+1)*block/minis)
			if from == to {
				continue
			}
			wide := make([]uint64, block/minis)
			width := 0
			for i, d := range diffs[from:to] {
				wide[i] = uint64(d) - uint64(low)
				if narrow {
					wide[i] = uint64(uint32(wide[i]))
				}
				width = max(width, bits.Len64(wide[i]))
			}
			dst[head+m] = byte(width)
			dst = pack(dst, wide, width)
		}
		diffs = diffs[n:]
	}
	return dst
}

func plainOf(dst []byte, phys physical, values []any) []byte {
	if phys == physBool {
		wide := make([]uint64, len(values))
		for i, v := range values {
			if v == true {
				wide[i] = 1
			}
		}
		return pack(dst, wide, 1)
	}
	for _, v := range values {
		switch v := v.(type) {
		case int32:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
		case int64:
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		case float32:
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
		case float64:
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
		case string:
			if phys == physBytes {
				dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v)))
			}
			dst = append(dst, v...)
		}
	}
	return dst
}

func (w *fileWriter) compress(b []byte) []byte {
	var out bytes.Buffer
	switch w.codec {
	case codecSnappy:
		return snappy.Encode(nil, b)
	case codecGzip:
		z := gzip.NewWriter(&out)
		z.Write(b)
		z.Close()
	case codecBrotli:
		z := brotli.NewWriter(&out)
		z.Write(b)
		z.Close()
	case codecZstd:
		z, _ := zstd.NewWriter(nil)
		return z.EncodeAll(b, nil)
	case codecLZ4Raw, codecLZ4:
		dst := make([]byte, lz4.CompressBlockBound(len(b)))
		n, _ := lz4.CompressBlock(b, dst, nil)
		if n == 0 { // not compressible: literals alone
			dst = dst[:0]
			if len(b) < 15 {
				dst = append(dst, byte(len(b))<<4)
			} else {
				dst = append(dst, 0xf0)
				left := len(b) - 15
				for ; left >= 255; left -= 255 {
					dst = append(dst, 255)
				}
				dst = append(dst, byte(left))
			}
			dst = append(dst, b...)
			n = len(dst)
		}
		if w.codec == codecLZ4 && w.draw.IntN(2) == 0 {
			head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
			return append(binary.BigEndian.AppendUint32(head, uint32(n)), dst[:n]...)
		}
		return dst[:n]
	default:
		return b
	}
	return out.Bytes()
}
