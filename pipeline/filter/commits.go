package filter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
)

// commits renames results to their final names. Several waiting results are made durable together:
// otherwise small shards would wait for the disk one after another.
//
//	lines of the ledger, fsync  ─►  rename each  ─►  fsync of the directories
//
// The process may be killed between any two of these: a ledger line whose file is missing, or
// different, has no effect.
type commits struct {
	ledger *ledger.Ledger
	root   string
	step   func()
	queue  chan *commit
	ended  chan struct{}
}

type commit struct {
	*result
	done chan error
}

// commitsAtATime is the maximum number of results that are made durable together.
const commitsAtATime = 256

func newCommits(l *ledger.Ledger, root string, step func()) *commits {
	c := &commits{ledger: l, root: root, step: step, queue: make(chan *commit, commitsAtATime), ended: make(chan struct{})}
	go c.run()
	return c
}

// close waits until the queue is empty.
func (c *commits) close() {
	close(c.queue)
	<-c.ended
}

// do makes a result durable. It consumes the result; on error the result's file is removed.
func (c *commits) do(ctx context.Context, x *result) error {
	if err := ctx.Err(); err != nil {
		x.discard()
		return err
	}
	one := &commit{x, make(chan error, 1)}
	c.queue <- one
	err := <-one.done
	if err != nil {
		x.discard()
	}
	return err
}

// discard removes the file of a result that has no name yet.
func (x *result) discard() {
	if x.temp != "" {
		_ = os.Remove(x.temp) // otherwise the next run does; after a rename it is gone
	}
}

func (c *commits) run() {
	defer close(c.ended)
	for first := range c.queue {
		waiting := []*commit{first}
		for len(waiting) < commitsAtATime && len(c.queue) > 0 {
			waiting = append(waiting, <-c.queue)
		}
		c.together(waiting)
	}
}

// together makes results durable, and sends each its outcome.
func (c *commits) together(waiting []*commit) {
	entries := make([]ledger.Entry, len(waiting))
	for i, x := range waiting {
		entries[i] = x.entry
	}
	c.step()
	err := c.ledger.Add(entries...)
	dirs := map[string]error{}
	errs := make([]error, len(waiting))
	for i, x := range waiting {
		if errs[i] = err; err == nil {
			errs[i] = c.name(x, dirs)
		}
	}
	for dir := range dirs {
		c.step()
		dirs[dir] = syncDir(dir)
	}
	for i, x := range waiting {
		if errs[i] == nil {
			errs[i] = dirs[filepath.Dir(c.path(x))]
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("DST: %w", errs[i])
		}
		x.done <- errs[i]
	}
}

func (c *commits) path(x *commit) string { return filepath.Join(c.root, x.source.name()) }

// name renames a result to its final name; if nothing is left of the shard, it removes the previous
// result.
func (c *commits) name(x *commit, dirs map[string]error) error {
	path := c.path(x)
	c.step()
	if x.temp == "" {
		err := os.Remove(path)
		if err == nil {
			dirs[filepath.Dir(path)] = nil
		} else if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			err = nil
		}
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: a file is where a directory is to be: delete it if its source is gone (--mirror does so), or name another DST", err)
	} else if err != nil {
		return err
	}
	c.step()
	if err := os.Rename(x.temp, path); err != nil {
		return err
	}
	dirs[filepath.Dir(path)] = nil
	return nil
}

// syncDir makes the names in a directory durable, if the file system supports it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
