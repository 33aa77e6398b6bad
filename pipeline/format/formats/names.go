package formats

import (
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Name is the parsed name of a shard, which is read from its end: a codec, then a format. Case is
// ignored. A shard number in the notation of Beam, TFDS or Spark ("-00002-of-00010", ".c000") may
// follow either of them, and is ignored.
type Name struct {
	// Stem is the path without the codec's ending and the numbers after the format: "a/b.tar" for
	// "a/b.tgz", "x.jsonl" for "x.jsonl.gz-00002-of-00010".
	Stem string
	// Plain is the path without only the codec's ending: two files with the same Plain are one
	// shard in two codecs.
	Plain string
	// Codec is the codec that the name implies; nil for none.
	Codec format.Codec
	// Format is the name of the format that the extension implies, "" for none.
	Format string
}

// ParseName parses the name of a shard. Only the last component matters.
func ParseName(path string) Name {
	slash := strings.LastIndexByte(path, '/') + 1
	base, last := cutNumber(path[slash:])
	n, left := Name{}, ""
	base, left, n.Codec = cutCodec(base)
	// Usually these are substrings of the path, which avoids allocations.
	if n.Plain = path; n.Codec != nil {
		n.Plain = path[:slash+len(base)] + left + last
	}
	if left != "" {
		n.Stem = path[:slash+len(base)] + left
		n.Format = formatOf(base + left)
		return n
	}
	base, _ = cutNumber(base)
	n.Stem, n.Format = path[:slash+len(base)], formatOf(base)
	return n
}

// Split removes a codec's ending from the path of a shard, and the shard number with it: see Name.
func Split(path string) (stem string, codec format.Codec) {
	n := ParseName(path)
	return n.Stem, n.Codec
}

// Extension returns the part of a name, without codec and number, after its last dot, including the
// dot and in lower case; "" for none. Digits alone count as a number: ".#".
func Extension(path string) string {
	stem := ParseName(path).Stem
	base := stem[strings.LastIndexByte(stem, '/')+1:]
	dot := strings.LastIndexByte(base, '.')
	if dot < 0 || dot == len(base)-1 {
		return ""
	}
	if digits(base[dot+1:]) == len(base)-dot-1 {
		return ".#"
	}
	return strings.ToLower(base[dot:])
}

// formatOf returns the format whose extension a base name ends in, "" for none.
func formatOf(base string) string {
	for i := range all {
		for _, e := range all[i].extensions {
			if _, has := cutEnding(base, e); has {
				return all[i].name
			}
		}
	}
	return ""
}

// cutEnding removes an ending from a name, ignoring case, if something is left.
func cutEnding(base, ending string) (string, bool) {
	at := len(base) - len(ending)
	if at <= 0 || !strings.EqualFold(base[at:], ending) {
		return base, false
	}
	return base[:at], true
}

// cutNumber removes the shard numbers from the end of a base name: "-00002-of-00010", ".c000".
func cutNumber(base string) (rest, number string) {
	rest = base
	for {
		at := numberAt(rest)
		if at <= 0 {
			return rest, base[len(rest):]
		}
		rest = rest[:at]
	}
}

// numberAt returns where a shard number at the end of a name begins, -1 for none.
func numberAt(s string) int {
	n := trailingDigits(s)
	if n == 0 {
		return -1
	}
	s = s[:len(s)-n]
	if rest, is := cutEnding(s, ".c"); is {
		return len(rest)
	}
	rest, is := cutEnding(s, "-of-")
	if !is {
		return -1
	}
	n = trailingDigits(rest)
	if rest = rest[:len(rest)-n]; n == 0 || !strings.HasSuffix(rest, "-") {
		return -1
	}
	return len(rest) - 1
}

func trailingDigits(s string) (n int) {
	for n < len(s) && isDigit(s[len(s)-1-n]) {
		n++
	}
	return n
}

// digits returns how many digits a text begins with.
func digits(s string) (n int) {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
