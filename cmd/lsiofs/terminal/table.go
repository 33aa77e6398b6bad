package terminal

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

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
