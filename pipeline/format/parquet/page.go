package parquet

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"math/bits"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// Page types of parquet.thrift.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// maxHeaderBytes bounds the header of a page, which may contain statistics.
const maxHeaderBytes = 16 << 20

// pageHeader is a PageHeader.
type pageHeader struct {
	kind       int32
	raw, size  int32 // bytes in the file, and when decompressed
	crc        uint32
	hasCRC     bool
	hasData    bool
	values     int32
	rows       int32 // version 2
	enc        encoding
	defEnc     encoding // version 1
	repEnc     encoding
	defBytes   int32 // version 2
	repBytes   int32
	uncompress bool
}

// parsePageHeader reads the header at the beginning of b, and returns its size.
func parsePageHeader(b []byte) (pageHeader, int, error) {
	h := pageHeader{kind: -1, raw: -1, size: -1, uncompress: true}
	t := &thrift{b: b}
	t.fields(func(id int16, kind byte) bool {
		switch id {
		case 1:
			h.kind = t.i32(kind)
		case 2:
			h.size = t.i32(kind)
		case 3:
			h.raw = t.i32(kind)
		case 4:
			h.crc, h.hasCRC = uint32(t.i32(kind)), true
		case 5, 7, 8:
			if !t.is(kind, thriftStruct) {
				return true
			}
			h.parseKind(t, id)
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return h, 0, t.err
	}
	known := h.kind == pageData || h.kind == pageDataV2 || h.kind == pageDictionary
	if h.raw < 0 || h.size < 0 || h.values < 0 || h.rows < 0 || h.defBytes < 0 || h.repBytes < 0 || known && !h.hasData {
		return h, 0, damaged("the header of a page is incomplete or has negative sizes")
	}
	return h, t.pos, nil
}

// parseKind reads the part of a header that is of one type of pages.
func (h *pageHeader) parseKind(t *thrift, of int16) {
	match := of == 5 && h.kind == pageData || of == 7 && h.kind == pageDictionary || of == 8 && h.kind == pageDataV2
	if !match {
		t.fieldsAt(1, nil)
		return
	}
	h.hasData = true
	t.fields(func(id int16, kind byte) bool {
		switch {
		case id == 1:
			h.values = t.i32(kind)
		case id == 2 && of != 8:
			h.enc = encoding(t.i32(kind))
		case id == 3 && of == 5:
			h.defEnc = encoding(t.i32(kind))
		case id == 4 && of == 5:
			h.repEnc = encoding(t.i32(kind))
		case id == 3 && of == 8:
			h.rows = t.i32(kind)
		case id == 4 && of == 8:
			h.enc = encoding(t.i32(kind))
		case id == 5 && of == 8:
			h.defBytes = t.i32(kind)
		case id == 6 && of == 8:
			h.repBytes = t.i32(kind)
		case id == 7 && of == 8:
			h.uncompress = t.bool(kind)
		default:
			return false
		}
		return true
	})
}

// leaf reads the pages of a column chunk one after another. It has the levels and values of one page
// and, before them, of a row that began in an earlier page.
type leaf struct {
	*leafInfo
	mem    *memory
	decomp *decompressor
	stats  *Stats
	raw    io.ReaderAt
	block  int64
	c      chunk

	window  []byte // of the file, from windowAt on
	winAt   int64
	pos     int64 // of the next page's header
	seen    int64 // values of the pages before pos
	partial bool  // rows that began in an earlier page are passed over: a point may begin after it
	skip    int64 // rows to pass over without decoding, where pages permit it

	dict    values
	hasDict bool

	// The current page. Levels are nil if the schema has none.
	tried    int64 // the page that was read last, whole or not
	pageAt   int64
	pageRow  int64 // rows that begin in it and have been consumed
	pageSeen int64 // values of the pages before it
	from     LeafPoint
	carried  bool // the next row began in an earlier page, at from

	n, at    int // levels, and those that have been consumed
	rows     int // complete rows that are left; of columns outside of lists n-at
	slotAt   int // slots that have been consumed
	whole    bool
	rep, def []uint8
	present  int // values
	coded    bool
	idx      []int32 // coded: of each value
	val      values  // else
	index    []int32 // of each slot; nil if slot i has value i
	indexBuf []int32
	page     []byte
	own      []byte // values of encodings that must be expanded
	lengths  []byte
	joined   []byte // carried values, and those of the page after them
	vec      rows.Vector
	taken    levelRange
}

// open begins a column chunk, at its beginning if p is the zero value.
func (l *leaf) open(c chunk, p LeafPoint) error {
	*l = leaf{leafInfo: l.leafInfo, mem: l.mem, decomp: l.decomp, stats: l.stats, raw: l.raw, block: l.block, c: c,
		window: l.window[:0], rep: l.rep, def: l.def, idx: l.idx, indexBuf: l.indexBuf, page: l.page, own: l.own,
		lengths: l.lengths, joined: l.joined, val: values{spans: l.val.spans},
		dict: values{bytes: l.dict.bytes, spans: l.dict.spans}}
	l.pos = c.from
	if p.RawOffset == 0 || p.RawOffset == c.from {
		l.skip = p.Pass
		return nil
	}
	if p.RawOffset < c.from || p.RawOffset >= c.to || p.Seen < 0 || p.Seen >= c.values || p.Pass < 0 {
		return errPoint
	}
	h, body, err := l.header()
	if err != nil {
		return err
	}
	if h.kind == pageDictionary {
		if err := l.dictionary(h, body); err != nil {
			return err
		}
	}
	l.pos, l.seen, l.skip, l.partial = p.RawOffset, p.Seen, p.Pass, true
	return nil
}

const errPoint = reason("a point is not in its column chunk: the shard has changed, or the point is of another one")

const errOutside = reason("a page extends beyond its column chunk")

// read returns n bytes of the file. They are valid until the next call.
func (l *leaf) read(at int64, n int) ([]byte, error) {
	if at < l.c.from || int64(n) > l.c.to-at {
		return nil, errOutside
	}
	off := at - l.winAt
	if off >= 0 && off+int64(n) <= int64(len(l.window)) {
		return l.window[off:][:n], nil
	}
	var have []byte
	if off >= 0 && off < int64(len(l.window)) {
		have = l.window[off:]
	}
	size := int(min(max(int64(n), l.block), l.c.to-at))
	kept := len(have)
	if size > cap(l.window) {
		l.window = l.window[:0]
		grown, err := grow(l.mem, l.window, size, 1)
		if err != nil {
			return nil, err
		}
		l.window = grown
	}
	l.window = l.window[:size]
	copy(l.window, have)
	l.winAt = at
	if err := readAt(l.raw, l.window[kept:], at+int64(kept)); err != nil {
		l.window = l.window[:0]
		return nil, err
	}
	return l.window[:n], nil
}

// header reads the header of the page at pos, and returns where its body begins.
func (l *leaf) header() (pageHeader, int64, error) {
	for size := int64(512); ; size *= 8 {
		size = min(size, l.c.to-l.pos)
		b, err := l.read(l.pos, int(size))
		if err != nil {
			return pageHeader{}, 0, err
		}
		h, n, err := parsePageHeader(b)
		if err == error(errThriftShort) && size < l.c.to-l.pos && size < maxHeaderBytes {
			continue
		}
		if err != nil {
			return h, 0, damaged("the header of a page: %v", err)
		}
		body := l.pos + int64(n)
		if int64(h.raw) > l.c.to-body {
			return h, 0, errOutside
		}
		return h, body, nil
	}
}

// body returns a page as it is in the file, and checks its CRC.
func (l *leaf) body(h pageHeader, at int64) ([]byte, error) {
	b, err := l.read(at, int(h.raw))
	if err != nil {
		return nil, err
	}
	if !h.hasCRC {
		l.stats.PagesWithoutCRC++
		return b, nil
	}
	l.stats.PagesWithCRC++
	if crc32.ChecksumIEEE(b) != h.crc {
		return nil, damaged("a page does not match its CRC")
	}
	return b, nil
}

// expand decompresses b to size bytes in buf. Pages that are not compressed are returned as they
// are.
func (l *leaf) expand(buf *[]byte, b []byte, size int) ([]byte, error) {
	if l.c.codec == uncompressed {
		if len(b) != size {
			return nil, damaged("a page has %d bytes, and its header %d", len(b), size)
		}
		return b, nil
	}
	if int64(size) > l.c.codec.ratio()*int64(len(b)) {
		return nil, damaged("a page of %d bytes can't decompress to the %d that its header has", len(b), size)
	}
	out, err := grow(l.mem, (*buf)[:0], size, 1)
	if err != nil {
		return nil, err
	}
	*buf = out
	return out[:size], l.decomp.decompress(l.c.codec, out[:size], b)
}

// dictionary decodes the dictionary, whose page begins at pos.
func (l *leaf) dictionary(h pageHeader, at int64) error {
	raw, err := l.body(h, at)
	if err != nil {
		return err
	}
	if h.enc != encPlain && h.enc != encPlainDictionary {
		return damaged("a dictionary has the encoding %d", h.enc)
	}
	b, err := l.expand(&l.dict.bytes, raw, int(h.size))
	if err != nil {
		return err
	}
	if l.c.codec == uncompressed { // the window does not stay
		if l.dict.bytes, err = grow(l.mem, l.dict.bytes[:0], len(b), 1); err != nil {
			return err
		}
		l.dict.bytes = append(l.dict.bytes, b...)
		b = l.dict.bytes
	}
	l.dict.bytes = b
	n := int(h.values)
	l.dict.n, l.dict.width = n, l.width
	switch {
	case l.phys == physBool:
		return damaged("a column of bools has a dictionary")
	case l.width > 0:
		if int64(n)*int64(l.width) > int64(len(b)) {
			return damaged("a dictionary ends early")
		}
	default:
		if n > len(b)/4 {
			return damaged("a dictionary ends early")
		}
		if l.dict.spans, err = grow(l.mem, l.dict.spans[:0], n, 8); err != nil {
			return err
		}
		if l.dict.spans, err = plainBytes(l.dict.spans, b, n, 0); err != nil {
			return err
		}
	}
	l.hasDict = true
	return nil
}

// next decodes the next data page, and returns io.EOF after the last one. The rest of the current
// page, which is the beginning of a row, is kept.
func (l *leaf) next() error {
	if err := l.carry(); err != nil {
		return err
	}
	for {
		if l.seen >= l.c.values {
			return io.EOF
		}
		if l.pos >= l.c.to {
			return damaged("the column chunk has %d values in its pages, and %d in the footer", l.seen, l.c.values)
		}
		l.tried = l.pos
		h, body, err := l.header()
		if err != nil {
			return err
		}
		at := l.pos
		switch h.kind {
		case pageDictionary:
			if l.hasDict || l.seen > 0 {
				return damaged("a dictionary is not the first page")
			}
			if err := l.dictionary(h, body); err != nil {
				return err
			}
		case pageData, pageDataV2:
			if int64(h.values) > l.c.values-l.seen {
				return damaged("the column chunk has more values in its pages than the %d in the footer", l.c.values)
			}
			l.pageAt, l.pageSeen, l.pageRow = at, l.seen, 0
			l.pos, l.seen = body+int64(h.raw), l.seen+int64(h.values)
			if l.passOver(h) || h.values == 0 {
				continue
			}
			return l.decode(h, body)
		}
		l.pos = body + int64(h.raw)
	}
}

// passOver reports whether a page is passed over without decoding, because all its rows are.
func (l *leaf) passOver(h pageHeader) bool {
	n := int64(h.values)
	if l.maxRep > 0 {
		if n = int64(h.rows); h.kind != pageDataV2 {
			return false
		}
	}
	if n == 0 || l.skip < n || l.n > 0 {
		return false
	}
	l.skip -= n
	l.partial = false
	return true
}

// carry moves what is left of the current page to the beginning of the buffers.
func (l *leaf) carry() error {
	left := l.n - l.at
	if left == 0 {
		l.n, l.at, l.present, l.slotAt, l.rows, l.carried = 0, 0, 0, 0, 0, false
		l.coded, l.joined, l.val.spans = false, l.joined[:0], l.val.spans[:0]
		return nil
	}
	if !l.carried {
		l.carried, l.from = true, LeafPoint{RawOffset: l.pageAt, Pass: l.pageRow, Seen: l.pageSeen}
	}
	copy(l.rep, l.rep[l.at:l.n])
	copy(l.def, l.def[l.at:l.n])
	kept := left
	if l.maxDef > 0 {
		kept = bytes.Count(l.def[:left], []byte{l.maxDef})
	}
	first := l.present - kept
	if l.coded {
		copy(l.idx, l.idx[first:l.present])
	} else if err := l.join(first, kept); err != nil {
		return err
	}
	l.n, l.at, l.present, l.slotAt, l.rows = left, 0, kept, 0, 0
	return nil
}

// join makes joined the n values from first on.
func (l *leaf) join(first, n int) error {
	v := &l.val
	if v.width > 0 {
		b := v.bytes[first*v.width:][:n*v.width]
		out, err := grow(l.mem, l.joined[:0], len(b), 1)
		if err != nil {
			return err
		}
		l.joined = append(out, b...) // b may be a later part of it
		return nil
	}
	total := int64(0)
	for _, s := range v.spans[first:][:n] {
		total += int64(s.Len)
	}
	out, err := grow(l.mem, l.joined[:0], int(total), 1)
	if err != nil {
		return err
	}
	for i, s := range v.spans[first:][:n] {
		at := len(out)
		out = append(out, v.bytes[s.At:][:s.Len]...) // in the same memory at or after its place
		v.spans[i] = rows.Span{At: uint32(at), Len: s.Len}
	}
	l.joined, v.spans = out, v.spans[:n]
	return nil
}

// gather appends the values that indexes of the dictionary mean to joined.
func (l *leaf) gather(idx []int32) error {
	total := int64(len(idx)) * int64(l.width)
	if l.width == 0 {
		for _, i := range idx {
			total += int64(l.dict.spans[i].Len)
		}
		spans, err := grow(l.mem, l.val.spans, len(l.val.spans)+len(idx), 8)
		if err != nil {
			return err
		}
		l.val.spans = spans
	}
	if total += int64(len(l.joined)); total > math.MaxUint32 {
		return &rows.RefusedError{Reason: errMemory}
	}
	out, err := grow(l.mem, l.joined, int(total), 1)
	if err != nil {
		return err
	}
	for _, i := range idx {
		if l.width > 0 {
			out = append(out, l.dict.bytes[int(i)*l.width:][:l.width]...)
			continue
		}
		s := l.dict.spans[i]
		l.val.spans = append(l.val.spans, rows.Span{At: uint32(len(out)), Len: s.Len})
		out = append(out, l.dict.bytes[s.At:][:s.Len]...)
	}
	l.joined = out
	return nil
}

// decode decodes a page of levels and values behind those that are carried.
func (l *leaf) decode(h pageHeader, at int64) error {
	carried := l.n
	n := carried + int(h.values)
	if n > math.MaxInt32 {
		return &rows.RefusedError{Reason: errMemory}
	}
	raw, err := l.body(h, at)
	if err != nil {
		return err
	}
	if l.maxRep > 0 {
		if l.rep, err = grow(l.mem, l.rep[:carried], n, 1); err != nil {
			return err
		}
		l.rep = l.rep[:n]
	}
	if l.maxDef > 0 {
		if l.def, err = grow(l.mem, l.def[:carried], n, 1); err != nil {
			return err
		}
		l.def = l.def[:n]
	}
	var b []byte
	if h.kind == pageDataV2 {
		b, err = l.levelsV2(h, raw, carried)
	} else {
		b, err = l.levelsV1(h, raw, carried)
	}
	if err != nil {
		return err
	}
	added := int(h.values)
	if l.maxDef > 0 {
		added = bytes.Count(l.def[carried:n], []byte{l.maxDef})
	}
	if err := l.decodeValues(h.enc, b, added); err != nil {
		return err
	}
	l.n, l.present = n, l.present+added
	l.whole = l.present == n
	if err := l.checkLevels(carried, h); err != nil {
		return err
	}
	return l.buildIndex()
}

func (l *leaf) levelsV2(h pageHeader, raw []byte, carried int) ([]byte, error) {
	if int64(h.repBytes)+int64(h.defBytes) > int64(min(h.raw, h.size)) {
		return nil, damaged("a page has more bytes of levels than it has")
	}
	rep, def, b := raw[:h.repBytes], raw[h.repBytes:][:h.defBytes], raw[h.repBytes+h.defBytes:]
	if l.maxRep > 0 {
		r := hybrid{b: rep, width: bits.Len8(l.maxRep)}
		if err := r.levels(l.rep[carried:], l.maxRep); err != nil {
			return nil, err
		}
	}
	if l.maxDef > 0 {
		r := hybrid{b: def, width: bits.Len8(l.maxDef)}
		if err := r.levels(l.def[carried:], l.maxDef); err != nil {
			return nil, err
		}
	}
	if !h.uncompress {
		return b, nil
	}
	return l.expand(&l.page, b, int(h.size-h.repBytes-h.defBytes))
}

func (l *leaf) levelsV1(h pageHeader, raw []byte, carried int) ([]byte, error) {
	b, err := l.expand(&l.page, raw, int(h.size))
	if err != nil {
		return nil, err
	}
	if l.maxRep > 0 {
		if b, err = levelsOf(l.rep[carried:], b, h.repEnc, l.maxRep); err != nil {
			return nil, err
		}
	}
	if l.maxDef > 0 {
		if b, err = levelsOf(l.def[carried:], b, h.defEnc, l.maxDef); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// levelsOf decodes the levels at the beginning of a page of version 1, and returns what follows.
func levelsOf(dst []uint8, b []byte, enc encoding, most uint8) ([]byte, error) {
	switch enc {
	case encRLE:
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errLevelsShort
		}
		size := int(binary.LittleEndian.Uint32(b))
		h := hybrid{b: b[4:][:size], width: bits.Len8(most)}
		return b[4+size:], h.levels(dst, most)
	case encBitPacked:
		n, err := bitPackedLevels(dst, b, most)
		return b[n:], err
	}
	return nil, damaged("levels have the encoding %d", enc)
}

// checkLevels checks what is new behind the carried levels, and counts the rows.
func (l *leaf) checkLevels(carried int, h pageHeader) error {
	if l.maxRep == 0 {
		l.rows = l.n
		return nil
	}
	rep := l.rep[carried:l.n]
	if carried == 0 && rep[0] != 0 {
		if !l.partial {
			return damaged("a page begins inside of a row that has ended")
		}
		at := bytes.IndexByte(rep, 0)
		if at < 0 {
			at = len(rep)
		}
		l.drop(at)
	}
	l.partial = l.partial && l.at == l.n
	if !l.whole {
		for p := max(carried, 1); p < l.n; p++ {
			if k := l.rep[p]; k > 0 && (l.def[p] < l.elemDefs[k-1] || l.def[p-1] < l.elemDefs[k-1]) && p > l.at {
				return damaged("its levels contradict each other")
			}
		}
	}
	begun := bytes.Count(rep, []byte{0})
	if h.kind == pageDataV2 && begun != int(h.rows) {
		return damaged("a page has %d rows, and its header %d", begun, h.rows)
	}
	l.rows = begun
	if carried > 0 {
		l.rows++
	}
	if l.rows > 0 && l.seen < l.c.values && h.kind != pageDataV2 {
		l.rows-- // it may continue in the next page
	}
	return nil
}

// buildIndex makes the index from slots to values, and the vector of the page.
func (l *leaf) buildIndex() error {
	l.index = nil
	switch {
	case l.whole && l.coded:
		l.index = l.idx[:l.present]
	case l.whole:
	default:
		out, err := grow(l.mem, l.indexBuf[:0], l.n, 4)
		if err != nil {
			return err
		}
		l.indexBuf = out
		out = out[:l.n]
		slots, value := 0, int32(0)
		idx := l.idx
		for _, d := range l.def[:l.n] {
			switch {
			case d == l.maxDef:
				out[slots] = value
				if l.coded {
					out[slots] = idx[value]
				}
				value++
				slots++
			case d >= l.slotDef:
				out[slots] = -1
				slots++
			}
		}
		l.index = out[:slots]
	}
	v := &l.val
	if l.coded {
		v = &l.dict
	}
	l.vec = rows.Vector{Index: l.index, Bytes: v.bytes, Width: v.width, Spans: v.spans, BigEndian: l.bigEndian}
	if l.at > 0 {
		l.slotAt = l.slots(0, l.at)
	}
	return nil
}

// slots returns the number of slots of some levels.
func (l *leaf) slots(from, to int) int {
	if l.whole || l.slotDef == 0 {
		return to - from
	}
	n := 0
	for _, d := range l.def[from:to] {
		if d >= l.slotDef {
			n++
		}
	}
	return n
}

// drop passes over levels. Slots are counted by the caller.
func (l *leaf) drop(n int) { l.at += n }

// end returns the level after the next n rows, of which there are as many.
func (l *leaf) end(n int) int {
	if l.maxRep == 0 {
		return l.at + n
	}
	at := l.at
	for range n {
		next := bytes.IndexByte(l.rep[at+1:l.n], 0)
		if next < 0 {
			return l.n
		}
		at += 1 + next
	}
	return at
}

// pass consumes the next n rows.
func (l *leaf) pass(n int) {
	if n == 0 {
		return
	}
	to := l.end(n)
	l.slotAt += l.slots(l.at, to)
	l.at = to
	l.rows -= n
	l.pageRow += int64(n)
	if l.carried {
		l.pageRow--
		l.carried = false
	}
}

// ready makes at least one row available, and returns how many are. It returns io.EOF after the last
// one.
func (l *leaf) ready() (int, error) {
	for {
		if l.skip > 0 && l.rows > 0 {
			n := int(min(l.skip, int64(l.rows)))
			l.pass(n)
			l.skip -= int64(n)
		}
		if l.rows > 0 {
			return l.rows, nil
		}
		if err := l.next(); err != nil {
			return 0, err
		}
	}
}

// point returns where the next row begins.
func (l *leaf) point() LeafPoint {
	p := LeafPoint{RawOffset: l.pageAt, Pass: l.pageRow, Seen: l.pageSeen}
	switch {
	case l.carried:
		p = l.from
	case l.at == l.n:
		p = LeafPoint{RawOffset: l.pos, Seen: l.seen}
	}
	p.RawEnd = l.pos
	return p
}
