package snapshots

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// unusedShard is a shard in the output of snapshots --unused --json.
type unusedShard struct {
	Path  string `json:"path"` // of the file
	Bytes int64  `json:"bytes"`
}

// Unused lists the files in the dataset's directory that are in kept snapshots but not in those of
// the newest keep epochs, whose snapshots must exist. It leaves out files that were changed after
// the last epoch that contains them was taken: they may be different files, which no epoch has yet.
func Unused(d *run.Directory, dataset string, keep uint64, u *terminal.UI) error {
	if info, err := os.Stat(dataset); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory: name the one that holds the run's shards", dataset)
	}
	numbers, err := d.Numbers()
	if err != nil || len(numbers) == 0 {
		return err
	}
	taken, err := unusedPaths(d, numbers, keep)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(taken)) {
		file := filepath.Join(dataset, path)
		var st unix.Stat_t
		err := unix.Lstat(file, &st)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "stat", Path: file, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || max(st.Mtim.Sec, st.Ctim.Sec) >= taken[path].Unix() {
			continue
		}
		if u.JSON {
			err = u.Emit(unusedShard{file, st.Size})
		} else {
			err = u.Printf("%s\n", file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unusedPaths returns the paths that are in kept snapshots but not in those of the newest keep
// epochs, whose snapshots must exist. The values are the times when the last epoch with the path
// was taken.
func unusedPaths(d *run.Directory, numbers []uint64, keep uint64) (map[string]time.Time, error) {
	first := max(0, len(numbers)-int(min(keep, uint64(len(numbers)))))
	needed, old, seen := map[string]bool{}, map[string]time.Time{}, map[string]bool{}
	for i, n := range slices.Backward(numbers) {
		e, err := d.Epoch(n)
		if err != nil {
			return nil, err
		}
		if i < first && seen[e.Snapshot] {
			continue
		}
		seen[e.Snapshot] = true
		taken, err := time.Parse(time.RFC3339, e.Taken)
		if err != nil {
			return nil, fmt.Errorf("epoch %d of %s: %w", n, d.Path(), err)
		}
		text, err := d.Snapshot(e.Snapshot)
		if errors.Is(err, run.ErrGone) && i < first {
			continue
		}
		if err != nil {
			return nil, err
		}
		shards, err := catalog.ShardsOf(text)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s of %s: %w", e.Snapshot, d.Path(), err)
		}
		for _, s := range shards {
			switch {
			case i >= first:
				needed[s.Path] = true
			case !needed[s.Path] && old[s.Path].IsZero() && filepath.IsLocal(s.Path):
				old[s.Path] = taken
			}
		}
	}
	return old, nil
}
