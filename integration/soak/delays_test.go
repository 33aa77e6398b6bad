package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// delays are the times from when a shard is closed or renamed until it is in the index. They
// include the interval between looks at the directory, the time that the shard settles in, and
// indexing.
type delays struct {
	index string // directory of a node
	data  string

	mu    sync.Mutex
	found []time.Duration
}

const (
	delaysEvery = 20 * time.Millisecond
	// nameBytes is more than the longest name of a shard.
	nameBytes = 64
)

var shardInJournal = regexp.MustCompile(`game\.[0-9]+\.txt\.gz`)

// watch reads what the node appends to its journals until ctx ends: the paths of shards are in
// there in plain text.
func (d *delays) watch(ctx context.Context) error {
	began := time.Now()
	read := map[string]int64{} // the offset up to which each journal has been read
	seen := map[string]bool{}
	for ; ctx.Err() == nil; pause(ctx, delaysEvery) {
		journals, err := filepath.Glob(filepath.Join(d.index, "*.journal"))
		if err != nil {
			return err
		}
		for _, path := range journals {
			from := max(0, read[path]-nameBytes) // a name may have been written in two parts
			b, err := readFrom(path, from)
			if errors.Is(err, os.ErrNotExist) {
				continue // its content has moved to another journal
			}
			if err != nil {
				return err
			}
			read[path] = from + int64(len(b))
			now := time.Now()
			for _, name := range shardInJournal.FindAllString(string(b), -1) {
				if !seen[name] {
					seen[name] = true
					d.note(name, began, now)
				}
			}
		}
	}
	return nil
}

// note counts a shard that has just been indexed, unless it is gone already, or existed before the
// node did: such a shard waited for the node.
func (d *delays) note(name string, began, now time.Time) {
	var s unix.Stat_t
	if unix.Stat(filepath.Join(d.data, name), &s) != nil {
		return
	}
	closed := time.Unix(s.Ctim.Unix()) // writing and renaming set it
	if closed.Before(began) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, now.Sub(closed))
}

func readFrom(path string, offsetBytes int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, offsetBytes, max(0, info.Size()-offsetBytes)))
}

func (d *delays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.found) == 0 {
		return "none"
	}
	slices.Sort(d.found)
	at := func(share float64) time.Duration {
		return d.found[int(share*float64(len(d.found)-1))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%v (half of %d shards), %v (99 of 100), %v at most", at(0.5), len(d.found), at(0.99), at(1))
}
