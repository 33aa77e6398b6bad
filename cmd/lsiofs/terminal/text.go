package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// Bytes formats a number of bytes with three digits and a unit.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// Count formats a whole number with commas.
func Count(n uint64) string { return humanize.Comma(int64(n)) }

// Plural formats a number of things: "1 record", "1,000 records".
func Plural(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + one + "s"
}

// Size formats n exactly, in the largest unit that divides it.
func Size(n uint64) string {
	for shift, unit := range map[int]string{40: "TiB", 30: "GiB", 20: "MiB", 10: "KiB"} {
		if n != 0 && n%(1<<shift) == 0 && (n>>shift)%1024 != 0 {
			return strconv.FormatUint(n>>shift, 10) + unit
		}
	}
	return strconv.FormatUint(n, 10)
}

// Round rounds d to a precision that suits people.
func Round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// Quote quotes s as one word for a shell.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,@%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Table writes names and values in two columns.
func Table(out io.Writer, rows [][2]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\n", printable.Line(r[0]), printable.Line(r[1]))
	}
	return w.Flush()
}

// Hashes draws n of most as a bar of at most width characters, with at least one for n > 0.
func Hashes(n, most uint64, width int) string {
	if n == 0 || most == 0 {
		return ""
	}
	return strings.Repeat("#", max(1, int(float64(n)/float64(most)*float64(width))))
}
