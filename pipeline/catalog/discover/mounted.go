package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mountType is the type of lsiofs' own mounts in /proc/self/mountinfo.
const mountType = "fuse.lsiofs"

// refuseMount refuses a directory of an lsiofs mount as a dataset of format, and one that a mount is
// below: a mount's files are the same records several times. Single files of it are files.
func refuseMount(t *Target, format string) error {
	if t.remote || !t.Whole() {
		return nil
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	above, is, below := "", false, ""
	for line := range strings.SplitSeq(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at, ours := unescaped(fields[4]), strings.Contains(line, " - "+mountType+" ")
		if t.root == at || strings.HasPrefix(t.root, strings.TrimSuffix(at, "/")+"/") {
			if len(at) >= len(above) { // a later one covers an earlier one
				above, is = at, ours
			}
			continue
		}
		path, within := strings.CutPrefix(at, strings.TrimSuffix(t.root, "/")+"/")
		if ours && within && !strings.Contains("/"+path, "/.") && !t.LeavesOutWithin(path, format) {
			below = path
		}
	}
	switch {
	case is:
		return fmt.Errorf("dataset %s is a mount of lsiofs, whose files are the same records several times: name the dataset that was mounted, or single files, such as %s",
			t, filepath.Join(above, "epoch-0", "worker-0-of-1.*"))
	case below != "":
		return fmt.Errorf("dataset %s holds a mount of lsiofs, whose files are the same records several times: leave it out with --exclude %s, or mount elsewhere", t, below)
	}
	return nil
}

// unescaped is a path of /proc/self/mountinfo.
func unescaped(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
