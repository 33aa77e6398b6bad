package profile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	fileSystem, source string
	options            string // of the superblock
}

// findMount returns the mount with a number, as statx returns it; the zero value if it is not
// listed.
func findMount(mountinfo string, id uint64) mount {
	for line := range strings.Lines(mountinfo) {
		number, rest, _ := strings.Cut(line, " ")
		if n, err := strconv.ParseUint(number, 10, 64); err != nil || n != id {
			continue
		}
		_, rest, ok := strings.Cut(rest, " - ")
		if f := strings.Fields(rest); ok && len(f) >= 2 {
			m := mount{fileSystem: f[0], source: UnescapeMount(f[1])}
			if len(f) > 2 {
				m.options = f[2]
			}
			return m
		}
	}
	return mount{}
}

// layers returns the directories of an overlay, the writable one first.
func (m mount) layers() []string {
	var upper, lower []string
	for option := range strings.SplitSeq(m.options, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "upperdir":
			upper = append(upper, UnescapeMount(value))
		case "lowerdir", "lowerdir+":
			for dir := range strings.SplitSeq(value, ":") {
				lower = append(lower, UnescapeMount(dir))
			}
		}
	}
	var dirs []string
	for _, dir := range append(upper, lower...) {
		// A relative path was relative for the process that mounted.
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// block returns the number of a file system's block device: its own or, if that is made up (btrfs),
// that of its source.
func (m mount) block(major, minor uint32) (uint32, uint32, bool) {
	if major != 0 {
		return major, minor, true
	}
	info, err := os.Stat(m.source)
	if err != nil || !filepath.IsAbs(m.source) || info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return 0, 0, false
	}
	var st unix.Stat_t
	if unix.Stat(m.source, &st) != nil {
		return 0, 0, false
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), true
}

// UnescapeMount undoes the kernel's octal escapes, such as \040 for a space, in
// /proc/self/mountinfo and similar files. Anything else stays as it is.
func UnescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
