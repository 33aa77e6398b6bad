package mounting

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// holder is a process that uses a mount.
type holder struct {
	PID  int
	Name string
	Uses string // one of the paths that it uses
}

// maxHolders bounds how many processes are looked for and printed.
const maxHolders = 8

// mapsPatience is how long it may take to examine the mappings of processes. The kernel makes that
// wait for a process that hangs, for example while it waits for a page of a file system that does
// not answer.
const mapsPatience = 3 * time.Second

// holders searches a proc file system for processes that have a file or directory below point open
// or mapped. Processes of other users show nothing. The process but is left out (it is this one,
// with what its parent left open to it). Mappings that can't be read within mapsPatience are
// skipped. list is os.ReadDir.
func holders(proc, point string, but int, list func(dir string) ([]os.DirEntry, error)) []holder {
	dirs, err := list(proc)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), mapsPatience)
	defer cancel()
	var found []holder
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == but {
			continue
		}
		dir := filepath.Join(proc, d.Name())
		linksOf := func(sub string) (links []string) {
			entries, _ := list(filepath.Join(dir, sub))
			for _, e := range entries {
				links = append(links, filepath.Join(dir, sub, e.Name()))
			}
			return links
		}
		uses := targetBelow(point, append(linksOf("fd"), filepath.Join(dir, "cwd"), filepath.Join(dir, "root")))
		if uses == "" && ctx.Err() == nil {
			mapped := make(chan string, 1)
			go func() { mapped <- targetBelow(point, linksOf("map_files")) }() // ends with this process at the latest
			select {
			case uses = <-mapped:
			case <-ctx.Done():
			}
		}
		if uses != "" {
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // "" for a process that is gone
			found = append(found, holder{pid, strings.TrimSpace(string(name)), uses})
		}
		if len(found) == maxHolders {
			break
		}
	}
	return found
}

// inside reports whether path is dir or below it. Both are absolute and clean.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// targetBelow returns the target of the first link that leads to point or below it, or "".
func targetBelow(point string, links []string) string {
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && inside(target, point) {
			return target
		}
	}
	return ""
}

func holdersText(held []holder) string {
	if len(held) == 0 {
		return ", used by processes that are not visible from here: end them"
	}
	parts := make([]string, len(held))
	for i, h := range held {
		parts[i] = fmt.Sprintf("%s (process %d) uses %s", h.Name, h.PID, h.Uses)
	}
	if len(held) == maxHolders {
		parts = append(parts, "and perhaps more")
	}
	return ": " + strings.Join(parts, ", ") + "; close these"
}
