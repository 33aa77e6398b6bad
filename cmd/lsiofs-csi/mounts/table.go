package mounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// FileSystem is the type of lsiofs' mounts.
const FileSystem = "fuse.lsiofs"

// Mount is a mount visible to this process.
type Mount struct {
	Point    string // absolute
	Device   string // major:minor
	Type     string
	ReadOnly bool // of this mount, whatever the file system is
}

// Table lists all mounts in the order of their creation.
type Table []Mount

// Read reads the kernel's mount table.
func Read() (Table, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("can't read the list of mounts: %w", err)
	}
	defer f.Close()
	return parse(f)
}

// parse parses mountinfo (proc_pid_mountinfo(5)): number, parent, device, root, point, options,
// tags up to a lone "-", type.
func parse(r io.Reader) (t Table, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, f := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(f) < 1 {
			continue
		}
		m := Mount{Device: l[2], Point: unescape(l[4]), Type: f[0]}
		for option := range strings.SplitSeq(l[5], ",") {
			m.ReadOnly = m.ReadOnly || option == "ro"
		}
		t = append(t, m)
	}
	return t, lines.Err()
}

// unescape decodes octal escapes such as \040, which the kernel writes for blanks, tabs, newlines
// and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return '0' <= c && c <= '7' }

// At returns the mounts at a point, the topmost last.
func (t Table) At(point string) (found []Mount) {
	for _, m := range t {
		if m.Point == point {
			found = append(found, m)
		}
	}
	return found
}

// Below returns the points of lsiofs' mounts at or below a directory, the latest first.
func (t Table) Below(dir string) (points []string) {
	for i := len(t) - 1; i >= 0; i-- {
		if m := t[i]; m.Type == FileSystem && (m.Point == dir || strings.HasPrefix(m.Point, dir+"/")) {
			points = append(points, m.Point)
		}
	}
	return points
}
