package tar_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
