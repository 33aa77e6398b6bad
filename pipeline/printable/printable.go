// Package printable makes text safe to show on a terminal. Names of shards and members, keys and
// reasons come from files of unknown origin. Printed unchanged, they could move the cursor, change
// the terminal's title or keys, or reverse a line's direction. All text for people passes through
// this package when it leaves lsiofs. Inside lsiofs, and in streams, bytes stay unchanged.
//
//	name from a shard ──► Text, Line, JSON ──► terminal, log, status
package printable

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with every character that is not graphic (control characters, invisible
// formatting, bytes that are not UTF-8) escaped as in a Go string. Line breaks and tabs stay.
func Text(s string) string { return escaped(s, "\n\t") }

// Line is Text on one line: line breaks and tabs are escaped too.
func Line(s string) string { return escaped(s, "") }

func escaped(s, kept string) string {
	plain := func(r rune, n int) bool {
		if r == utf8.RuneError && n == 1 {
			return false
		}
		return unicode.IsGraphic(r) || strings.ContainsRune(kept, r)
	}
	from := 0
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !plain(r, n) {
			b.WriteString(s[from:i])
			switch {
			case n == 1 || r < 0x80: // also a byte that starts no rune
				fmt.Fprintf(&b, `\x%02x`, s[i])
			case r > 0xffff:
				fmt.Fprintf(&b, `\U%08x`, r)
			default:
				fmt.Fprintf(&b, `\u%04x`, r)
			}
			from = i + n
		}
		i += n
	}
	if from == 0 {
		return s
	}
	b.WriteString(s[from:])
	return b.String()
}

// JSON escapes in a JSON text what Text would escape, by JSON's rules, so that its values stay the
// same. encoding/json escapes only part of it.
func JSON(text []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && !unicode.IsGraphic(r) }
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	b := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		switch {
		case !hidden(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff: // as a surrogate pair
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}
