package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountType is the type of lsiofs' own mounts in /proc/self/mountinfo.
const mountType = "fuse.lsiofs"

// refuseMount refuses a directory of an lsiofs mount as a dataset: its files are the same
// records several times. Single files of it are files.
func refuseMount(t *Target) error {
	if t.remote || !t.Whole() {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(t.root, &st); err != nil || st.Type != unix.FUSE_SUPER_MAGIC {
		return nil
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	point, is := "", false
	for line := range strings.SplitSeq(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := unescaped(fields[4])
		if t.root != at && !strings.HasPrefix(t.root, strings.TrimSuffix(at, "/")+"/") || len(at) < len(point) {
			continue
		}
		point, is = at, strings.Contains(line, " - "+mountType+" ") // a later one covers an earlier one
	}
	if !is {
		return nil
	}
	return fmt.Errorf("dataset %s is a mount of lsiofs, whose files are the same records several times: name the dataset that was mounted, or single files, such as %s",
		t, filepath.Join(point, "epoch-0", "worker-0-of-1.*"))
}

// unescaped is a path of /proc/self/mountinfo.
func unescaped(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
