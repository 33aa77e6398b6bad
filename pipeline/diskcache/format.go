package diskcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

const (
	// pageBytes is the unit that is stored, checked and dropped. It is the size of a page of the
	// kernel's page cache on most machines, and of the smallest block that file systems can free.
	pageBytes = 4096

	headerBytes   = 4096
	sumBytes      = 4 // per page
	formatVersion = 1
	textAt        = 40
	textBytes     = 4040 // for URL and validator
	headerSumAt   = headerBytes - 8

	// maxObjectBytes keeps sizes of files, and sums of sizes, within an int64.
	maxObjectBytes = 1 << 60
)

const (
	magic     = "lsiofsCC"
	keyPrefix = "lsiofs cache 1\n"
	tagName   = "CACHEDIR.TAG"
	tagMine   = "Signature: 8a477f597d28d172789f06886806bc55\n# lsiofs cache"
	tagText   = tagMine + " 1\n"
	storeName = "v1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Identity names the bytes of an object, the same in all runs and on all machines: where they are,
// and in which version. Two objects with the same identity and size have the same bytes. Neither
// field contains secrets, because both are written to the disk.
type Identity struct {
	URL       string // canonical, without credentials and query
	Validator string // such as a strong ETag or a generation
}

// key identifies an object in a cache.
type key [16]byte

// keyOf returns the key of an object of sizeBytes.
func keyOf(id Identity, sizeBytes int64) key {
	text := keyPrefix + id.URL + "\n" + id.Validator + "\n" + strconv.FormatInt(sizeBytes, 10) + "\n"
	sum := sha256.Sum256([]byte(text))
	return key(sum[:len(key{})])
}

// name returns the name of the object's files, without their extensions.
func (k key) name() string { return hex.EncodeToString(k[:]) }

// folder returns the name of their directory, two digits.
func (k key) folder() string { return k.name()[:2] }

// parseName is the inverse of name.
func parseName(name string) (k key, ok bool) {
	if len(name) != hex.EncodedLen(len(k)) {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(name))
	return k, err == nil && k.name() == name
}

// pagesOf returns how many pages an object of that many bytes has.
func pagesOf(sizeBytes int64) int64 { return (sizeBytes + pageBytes - 1) / pageBytes }

// sumsAt returns the offset of a page's sum in a .sums file.
func sumsAt(page int64) int64 { return headerBytes + sumBytes*page }

// summer computes sums of one object's pages. It is a plain value.
type summer uint32

func newSummer(k key) summer { return summer(crc32.Update(0, castagnoli, k[:])) }

// sum returns the sum of one whole page, never 0.
func (s summer) sum(page int64, content []byte) uint32 {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(page))
	sum := crc32.Update(crc32.Update(uint32(s), castagnoli, number[:]), castagnoli, content)
	return max(sum, 1)
}

// header is the first 4096 bytes of a .sums file.
type header struct {
	ObjectBytes    int64
	Created        time.Time // in whole seconds
	URL, Validator string    // for people: cut if they are too long
}

// encode returns the header's 4096 bytes.
func (h *header) encode() []byte {
	b := make([]byte, headerBytes)
	url := cut(h.URL, textBytes)
	validator := cut(h.Validator, textBytes-len(url))
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], pageBytes)
	le.PutUint64(b[16:], uint64(h.ObjectBytes))
	le.PutUint64(b[24:], uint64(h.Created.Unix()))
	le.PutUint32(b[32:], uint32(len(url)))
	le.PutUint32(b[36:], uint32(len(validator)))
	copy(b[textAt:], url)
	copy(b[textAt+len(url):], validator)
	le.PutUint64(b[headerSumAt:], xxh3.Hash(b[:headerSumAt]))
	return b
}

// cut returns at most n bytes of a text, without splitting a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

var errHeader = errors.New("not a header of this cache's format")

// parseHeader parses what encode returned. Errors wrap errHeader.
func parseHeader(b []byte) (header, error) {
	le := binary.LittleEndian
	switch {
	case len(b) != headerBytes:
		return header{}, fmt.Errorf("%w: %d bytes instead of %d", errHeader, len(b), headerBytes)
	case string(b[:len(magic)]) != magic:
		return header{}, fmt.Errorf("%w: it begins otherwise", errHeader)
	case xxh3.Hash(b[:headerSumAt]) != le.Uint64(b[headerSumAt:]):
		return header{}, fmt.Errorf("%w: its sum does not match", errHeader)
	case le.Uint32(b[8:]) != formatVersion || le.Uint32(b[12:]) != pageBytes:
		return header{}, fmt.Errorf("%w: version %d, pages of %d bytes", errHeader, le.Uint32(b[8:]), le.Uint32(b[12:]))
	}
	size, url, validator := le.Uint64(b[16:]), uint64(le.Uint32(b[32:])), uint64(le.Uint32(b[36:]))
	switch {
	case size > maxObjectBytes:
		return header{}, fmt.Errorf("%w: an object of %d bytes", errHeader, size)
	case url+validator > textBytes:
		return header{}, fmt.Errorf("%w: texts of %d and %d bytes", errHeader, url, validator)
	case len(bytes.Trim(b[textAt+url+validator:headerSumAt], "\x00")) > 0:
		return header{}, fmt.Errorf("%w: bytes follow the texts", errHeader)
	}
	return header{
		ObjectBytes: int64(size),
		Created:     time.Unix(int64(le.Uint64(b[24:])), 0),
		URL:         string(b[textAt : textAt+url]),
		Validator:   string(b[textAt+url : textAt+url+validator]),
	}, nil
}

// run is the pages of an object from begin to end-1.
type run struct{ begin, end int64 }

func (r run) pages() int64 { return r.end - r.begin }

func (r run) bytes() int64 { return r.pages() * pageBytes }

// overlap returns the pages that two runs have in common; the result may be empty (pages() ≤ 0).
func (r run) overlap(o run) run { return run{max(r.begin, o.begin), min(r.end, o.end)} }

// runOf returns the pages that a range of bytes touches.
func runOf(off, n int64) run { return run{off / pageBytes, pagesOf(off + n)} }

// sumOf returns the i-th of sums, which are as in a .sums file.
func sumOf(sums []byte, i int64) uint32 { return binary.LittleEndian.Uint32(sums[sumBytes*i:]) }

// alike iterates over the maximal runs of pages that are cached, or are not; sums are those of the
// pages from first on.
func alike(sums []byte, first int64) iter.Seq2[run, bool] {
	return func(yield func(run, bool) bool) {
		n := int64(len(sums) / sumBytes)
		for i := int64(0); i < n; {
			here, j := sumOf(sums, i) != 0, i+1
			for j < n && (sumOf(sums, j) != 0) == here {
				j++
			}
			if !yield(run{first + i, first + j}, here) {
				return
			}
			i = j
		}
	}
}

// join joins runs, which are in order, with at most gap pages between them.
func join(runs []run, gap int64) []run {
	joined := runs[:0]
	for _, r := range runs {
		if last := len(joined) - 1; last >= 0 && r.begin-joined[last].end <= gap {
			joined[last].end = r.end
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// with adds a page to runs, which are in order. The page is not before any of them.
func with(runs []run, page int64) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].end == page {
		runs[last].end++
		return runs
	}
	return append(runs, run{page, page + 1})
}

// missing returns the runs of missing pages, joined over gaps of at most gap pages.
func missing(sums []byte, first, gap int64) []run {
	var runs []run
	for r, here := range alike(sums, first) {
		if !here {
			runs = append(runs, r)
		}
	}
	return join(runs, gap)
}

// pageSet is a set of pages of one object. The zero value is empty.
type pageSet struct {
	words []uint64
	n     int64
}

func (s *pageSet) has(page int64) bool {
	return page>>6 < int64(len(s.words)) && s.words[page>>6]>>(page&63)&1 == 1
}

// add adds a page, and reports whether it was not in the set.
func (s *pageSet) add(page int64) bool {
	if s.has(page) {
		return false
	}
	for page>>6 >= int64(len(s.words)) {
		s.words = append(s.words, 0)
	}
	s.words[page>>6] |= 1 << (page & 63)
	s.n++
	return true
}

// remove removes a page, and reports whether it was in the set.
func (s *pageSet) remove(page int64) bool {
	if !s.has(page) {
		return false
	}
	s.words[page>>6] &^= 1 << (page & 63)
	s.n--
	return true
}
