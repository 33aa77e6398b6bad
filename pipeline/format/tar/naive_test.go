package tar_test

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
)

// This file is a second implementation of reading and renaming archives, whole in memory, as
// literally as possible after pipeline/format/TAR.md and pipeline/order/STREAMS.md.

type piece struct {
	at   int // of the header
	kind byte
	data []byte
	end  int
}

type naiveMember struct {
	exts     []piece
	own      piece
	path     string
	regular  bool
	eligible bool
	key      string
	dotted   bool // key is a proper prefix of the path
}

func (m naiveMember) start() int {
	if len(m.exts) > 0 {
		return m.exts[0].at
	}
	return m.own.at
}

type naiveArchive struct {
	members          []naiveMember
	whole            bool // the archive's end was found
	damaged, refused bool
}

// number parses a numeric field; nil means that it is not a number.
func number(field []byte) *big.Int {
	if field[0] >= 0x80 {
		if field[0] >= 0xc0 {
			return nil
		}
		b := slices.Clone(field)
		b[0] &= 0x3f
		return new(big.Int).SetBytes(b)
	}
	s := strings.TrimLeft(string(field), " \x00")
	if i := strings.IndexAny(s, " \x00"); i >= 0 {
		s = s[:i]
	}
	if s == "" {
		return new(big.Int)
	}
	for _, c := range s {
		if c < '0' || c > '7' {
			return nil
		}
	}
	v, _ := new(big.Int).SetString(s, 8)
	return v
}

func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

func sumIsRight(h []byte) bool {
	unsigned, signed := 0, 0
	for i, c := range h {
		if i >= 148 && i < 156 {
			c = ' '
		}
		unsigned += int(c)
		signed += int(int8(c))
	}
	want := number(h[148:156])
	return want != nil && h[148] < 0x80 && (want.Cmp(big.NewInt(int64(unsigned))) == 0 || want.Cmp(big.NewInt(int64(signed))) == 0)
}

type kv struct {
	key, value string
	start, end int
}

func paxRecords(data []byte) ([]kv, bool) {
	var all []kv
	at := 0
	for at < len(data) {
		number, _, found := strings.Cut(string(data[at:]), " ")
		if !found || number == "" || strings.Trim(number, "0123456789") != "" || len(number) > 20 {
			return nil, false
		}
		n, err := strconv.Atoi(number)
		if err != nil || n > len(data)-at || n < len(number)+2 {
			return nil, false
		}
		body := string(data[at+len(number)+1 : at+n])
		if !strings.HasSuffix(body, "\n") {
			return nil, false
		}
		k, v, found := strings.Cut(strings.TrimSuffix(body, "\n"), "=")
		if !found || k == "" {
			return nil, false
		}
		all = append(all, kv{k, v, at, at + n})
		at += n
	}
	return all, true
}

// readArchive reads members until the archive ends, or can't be read.
func readArchive(shard []byte) (a naiveArchive) {
	defer func() {
		switch recover() {
		case nil:
		case "damaged":
			a.damaged = true
		case "refused":
			a.refused = true
		default:
			panic("naive parser")
		}
	}()
	var m naiveMember
	var paxPath, longPath, paxSize *string
	at := 0
	for {
		rest := shard[at:]
		if len(rest) == 0 || len(rest) >= 512 && len(bytes.Trim(rest[:512], "\x00")) == 0 {
			if len(m.exts) > 0 {
				panic("damaged")
			}
			a.whole = true
			if len(bytes.Trim(rest, "\x00")) > 0 {
				panic("damaged")
			}
			return a
		}
		if len(rest) < 512 || !sumIsRight(rest[:512]) {
			panic("damaged")
		}
		h := rest[:512]
		kind := h[156]
		size := number(h[124:136])
		if kind >= '1' && kind <= '6' {
			size = new(big.Int)
		}
		if size == nil {
			panic("damaged")
		}
		isExt := strings.ContainsRune("xXgLK", rune(kind)) && kind < 0x80
		if kind == 'S' {
			panic("refused")
		}
		if !isExt {
			if paxSize != nil {
				size, _ = new(big.Int).SetString(*paxSize, 10)
			}
			if kind >= '1' && kind <= '6' {
				size = new(big.Int)
			}
		}
		p := piece{at: at, kind: kind}
		if size.Cmp(big.NewInt(int64(len(rest)-512))) <= 0 {
			p.data = rest[512 : 512+int(size.Int64())]
		}
		paddedEnd := new(big.Int).Add(size, big.NewInt(511))
		paddedEnd.Rsh(paddedEnd, 9).Lsh(paddedEnd, 9)
		fits := paddedEnd.Cmp(big.NewInt(int64(len(rest)-512))) <= 0
		if isExt && !fits {
			panic("damaged")
		}
		if isExt && kind != 'K' && paddedEnd.Int64() > 1<<20 {
			panic("refused")
		}
		switch kind {
		case 'x', 'X', 'g':
			records, ok := paxRecords(p.data)
			if !ok {
				panic("damaged")
			}
			for _, r := range records {
				if r.key == "size" && kind != 'g' {
					if _, ok := new(big.Int).SetString(r.value, 10); !ok || strings.Trim(r.value, "0123456789") != "" {
						panic("damaged")
					}
				}
			}
			for _, r := range records {
				if strings.HasPrefix(r.key, "GNU.sparse.") || kind == 'g' && (r.key == "path" || r.key == "size") {
					panic("refused")
				}
				if r.key == "path" {
					paxPath = &r.value
				}
				if r.key == "size" {
					paxSize = &r.value
				}
			}
		case 'L':
			s := cString(p.data)
			longPath = &s
		}
		if isExt {
			p.end = at + 512 + int(paddedEnd.Int64())
			if kind != 'g' {
				m.exts = append(m.exts, p)
			}
			at = p.end
			continue
		}
		m.path = cString(h[:100])
		if string(h[257:265]) == "ustar\x0000" && h[345] != 0 {
			m.path = cString(h[345:500]) + "/" + m.path
		}
		if longPath != nil {
			m.path = *longPath
		}
		if paxPath != nil {
			m.path = *paxPath
		}
		dir, base := "", m.path
		if i := strings.LastIndex(m.path, "/"); i >= 0 {
			dir, base = m.path[:i+1], m.path[i+1:]
		}
		stem, _, dotted := strings.Cut(base, ".")
		first, _, _ := strings.Cut(m.path, "/")
		dunder := len(first) >= 4 && first[:2] == "__" && first[len(first)-2:] == "__"
		m.regular = kind == '0' || kind == 0 || kind == '7'
		m.dotted = dotted && stem != ""
		m.eligible = m.regular && m.dotted && !dunder
		m.key = dir + stem
		m.own = p
		if !fits {
			// Its headers are intact, and show the end of the previous sample.
			m.own.end = -1
			a.members = append(a.members, m)
			panic("damaged")
		}
		m.own.end = at + 512 + int(paddedEnd.Int64())
		at = m.own.end
		a.members = append(a.members, m)
		m, paxPath, longPath, paxSize = naiveMember{}, nil, nil, nil
	}
}

// naive finds the samples of an archive.
func naive(shard []byte) formattest.Outcome {
	return naiveRecords(shard, func(m naiveMember) bool { return m.eligible })
}

// naiveFiles finds the records of an archive of format files.
func naiveFiles(shard []byte) formattest.Outcome {
	return naiveRecords(shard, func(m naiveMember) bool { return m.regular })
}

func naiveRecords(shard []byte, counts func(naiveMember) bool) formattest.Outcome {
	a := readArchive(shard)
	o := formattest.Outcome{Damaged: a.damaged, Refused: a.refused}
	var run []naiveMember
	flush := func() {
		if len(run) > 0 {
			start, end := run[0].start(), run[len(run)-1].own.end
			r := formattest.Record{OffsetBytes: int64(start), SizeBytes: int64(end - start), Growth: naiveGrowth(shard[start:end])}
			if run[0].dotted {
				r.KeyHash = xxh3.HashString(run[0].key)
			}
			o.Records = append(o.Records, r)
		}
		run = nil
	}
	for _, m := range a.members {
		if !counts(m) {
			continue
		}
		if len(run) > 0 && (run[0].key != m.key || !m.dotted || !run[0].dotted) {
			flush()
		}
		run = append(run, m)
	}
	if a.whole {
		flush()
	}
	return o
}

// grown caches the results of naiveGrowth: the suite calls it for the same records thousands of
// times.
var grown = map[string][]int64{}

// naiveGrowth renames a record at positions of every number of digits.
func naiveGrowth(record []byte) (growth []int64) {
	if known, ok := grown[string(record)]; ok {
		return known
	}
	defer func() { grown[string(record)] = growth }()
	some := false
	members := readArchive(record).members
	for d := range 20 {
		n := int64(len(naiveRenamed(members, record, "1"+strings.Repeat("0", d))) - len(record))
		growth = append(growth, n)
		some = some || n != 0
	}
	if !some {
		return nil
	}
	return growth
}

// naiveRename applies the equal-key rule at position p.
func naiveRename(record []byte, p string) []byte {
	return naiveRenamed(readArchive(record).members, record, p)
}

func naiveRenamed(members []naiveMember, record []byte, p string) []byte {
	var out []byte
	at := 0
	for _, m := range members {
		if !m.eligible {
			continue
		}
		path := "dup-" + p + "/" + m.path
		var pax, long *piece
		for i, e := range m.exts {
			switch e.kind {
			case 'x', 'X':
				pax = &m.exts[i]
			case 'L':
				long = &m.exts[i]
			}
		}
		h := slices.Clone(record[m.own.at : m.own.at+512])
		prefix := ""
		if string(h[257:265]) == "ustar\x0000" {
			prefix = cString(h[345:500])
		}
		newPrefix := "dup-" + p
		if prefix != "" {
			newPrefix += "/" + prefix
		}
		switch {
		case pax != nil:
			records, _ := paxRecords(pax.data)
			data, last := "", -1
			for i, r := range records {
				if r.key == "path" {
					last = i
				}
			}
			for i, r := range records {
				if i == last {
					data += naivePath(path)
				} else {
					data += string(pax.data[r.start:r.end])
				}
			}
			if last < 0 {
				data += naivePath(path)
			}
			out = append(out, record[at:pax.at]...)
			out = append(out, naiveExtension(record[pax.at:pax.at+512], data)...)
			at = pax.end
		case long != nil:
			out = append(out, record[at:long.at]...)
			out = append(out, naiveExtension(record[long.at:long.at+512], path+"\x00")...)
			at = long.end
		case len(newPrefix) <= 155:
			out = append(out, record[at:m.own.at]...)
			copy(h[345:], make([]byte, 512-345))
			copy(h[345:500], newPrefix)
			copy(h[257:], "ustar\x0000")
			out = append(out, naiveChecksum(h)...)
			at = m.own.at + 512
		default:
			out = append(out, record[at:m.start()]...)
			x := make([]byte, 512)
			copy(x, "././@PaxHeader")
			copy(x[100:], "0000644\x000000000\x000000000\x00")
			copy(x[136:], "00000000000\x00")
			copy(x[156:], "x")
			copy(x[257:], "ustar\x0000")
			out = append(out, naiveExtension(x, naivePath(path))...)
			at = m.start()
		}
	}
	return append(out, record[at:]...)
}

// naivePath returns a path record by trying lengths until one fits.
func naivePath(path string) string {
	for n := len(path); ; n++ {
		if s := strconv.Itoa(n) + " path=" + path + "\n"; len(s) == n {
			return s
		}
	}
}

func naiveExtension(header []byte, data string) []byte {
	h := slices.Clone(header)
	copy(h[124:], fmt.Sprintf("%011o\x00", len(data)))
	h = append(naiveChecksum(h), data...)
	return append(h, make([]byte, -len(data)&511)...)
}

func naiveChecksum(h []byte) []byte {
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h[:512] {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}
