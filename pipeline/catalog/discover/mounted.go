package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mountType is the type of lsiofs's own mounts in /proc/self/mountinfo.
const mountType = "fuse.lsiofs"

// refuseMount refuses as a dataset an lsiofs mount, and a directory that contains one: a mount's
// worker files and each of its epochs have the same records. One folder of a mount has each record
// once, and so have the files of one folder.
func refuseMount(t *Target, format string) error {
	folders := t.pattern != nil && strings.Contains(t.pattern.text, "/") // it may match several
	if t.remote || !t.Whole() && !folders {
		return nil
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	above, inside, below := "", "", ""
	for line := range strings.SplitSeq(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at, ours := unescaped(fields[4]), strings.Contains(line, " - "+mountType+" ")
		if t.root == at || strings.HasPrefix(t.root, strings.TrimSuffix(at, "/")+"/") {
			if len(at) >= len(above) { // a later one covers an earlier one
				above, inside = at, ""
				if ours { // fields[3] is the part of the mount that is visible here: bind mounts show a folder
					inside = filepath.Join(fields[3], strings.TrimPrefix(t.root, at))
				}
			}
			continue
		}
		path, within := strings.CutPrefix(at, strings.TrimSuffix(t.root, "/")+"/")
		if ours && within && !folders && !strings.Contains("/"+path, "/.") && !t.LeavesOutWithin(path, format) {
			below = path
		}
	}
	switch {
	case inside == "/":
		return fmt.Errorf("dataset %s is a mount of lsiofs, whose worker files and epochs are the same records several times: name one folder of it (%s), one pattern of files ('%s'), or the dataset that was mounted",
			t, filepath.Join(t.root, "epoch-0"), filepath.Join(t.root, "worker-*"))
	case below != "":
		return fmt.Errorf("dataset %s holds a mount of lsiofs, whose files are the same records several times: leave it out with --exclude %s, or mount elsewhere", t, below)
	}
	return nil
}

// unescaped decodes a path of /proc/self/mountinfo.
func unescaped(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
