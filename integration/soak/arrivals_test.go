package soak

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	arrivalsPerSecond = 1000
	linesPerShard     = 5
	rsyncsAtATime     = 100 // shards, about every two seconds
)

// arrivals is a directory where shards arrive. The content of each follows from its number.
type arrivals struct {
	dir     string
	seed    uint64
	staged  string       // a directory that rsync takes them from
	waiting int          // the number of shards there
	renamed atomic.Int64 // how many arrived that way; see arrive
	rsynced atomic.Int64
	inPlace atomic.Int64
	slow    atomic.Int64
	halves  atomic.Int64
	never   atomic.Int64
}

func (a *arrivals) String() string {
	return fmt.Sprintf("%d renamed into place, %d by rsync, %d written in place, %d slowly, %d in two parts, %d never finished",
		a.renamed.Load(), a.rsynced.Load(), a.inPlace.Load(), a.slow.Load(), a.halves.Load(), a.never.Load())
}

// count returns how many shards have arrived, as whole files or not.
func (a *arrivals) count() int {
	return int(a.renamed.Load() + a.rsynced.Load() + a.inPlace.Load() + a.slow.Load() + a.halves.Load())
}

func shardName(number int) string { return fmt.Sprintf("game.%d.txt.gz", number) }

// numberOf returns the number of a shard by its name.
func numberOf(name string) (int, error) {
	return strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "game."), ".txt.gz"))
}

// line returns a record of a shard, including its newline.
func (a *arrivals) line(shard, ordinal int) []byte {
	r := rand.New(rand.NewPCG(a.seed, uint64(shard)<<8|uint64(ordinal)))
	return fmt.Appendf(nil, "%d %d %s\n", shard, ordinal, letters(r, 20+r.IntN(200)))
}

// content returns a shard's file.
func (a *arrivals) content(shard int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for i := range linesPerShard {
		_, err := w.Write(a.line(shard, i))
		must(err)
	}
	must(w.Close())
	return b.Bytes()
}

// unfinished is a shard whose second half is yet to be written.
type unfinished struct {
	path string
	file *os.File // nil: it was closed in between
	rest []byte
	at   time.Time
}

// write makes shards arrive until ctx ends: at a fixed rate, or as fast as the machine can write.
// Then it finishes those it has begun.
func (a *arrivals) write(ctx context.Context) error {
	r := rand.New(rand.NewPCG(a.seed, 1))
	var open []unfinished
	finish := func(until time.Time) error {
		for len(open) > 0 && !open[0].at.After(until) {
			if err := open[0].finish(); err != nil {
				return err
			}
			open = open[1:]
		}
		return nil
	}
	began := time.Now()
	for number := 0; ctx.Err() == nil; number++ {
		if ahead := time.Duration(number)*time.Second/arrivalsPerSecond - time.Since(began); ahead > 10*time.Millisecond {
			pause(ctx, ahead)
		}
		later, err := a.arrive(r, number)
		if err != nil {
			return err
		}
		if later != nil {
			open = append(open, *later)
		}
		if err := finish(time.Now()); err != nil {
			return err
		}
		if a.waiting >= rsyncsAtATime {
			if err := a.rsync(); err != nil {
				return err
			}
		}
	}
	if err := a.rsync(); err != nil {
		return err
	}
	return finish(time.Now().Add(time.Hour))
}

// arrive writes a shard in one of the ways that programs do. A shard that it returns is to be
// finished later.
func (a *arrivals) arrive(r *rand.Rand, number int) (*unfinished, error) {
	path, b := filepath.Join(a.dir, shardName(number)), a.content(number)
	half := 1 + r.IntN(len(b)-1)
	later := unfinished{path: path, rest: b[half:], at: time.Now().Add(1500 * time.Millisecond)}
	switch way := r.IntN(1000); {
	case way < 50:
		a.waiting++
		return nil, os.WriteFile(filepath.Join(a.staged, shardName(number)), b, 0o644)
	case way < 700: // like careful programs
		a.renamed.Add(1)
		temporary := filepath.Join(a.dir, fmt.Sprintf(".%s.%06d", shardName(number), r.IntN(1e6)))
		if err := os.WriteFile(temporary, b, 0o644); err != nil {
			return nil, err
		}
		return nil, os.Rename(temporary, path)
	case way < 985: // like cp
		a.inPlace.Add(1)
		return nil, os.WriteFile(path, b, 0o644)
	case way < 994: // like a program that writes while it computes
		a.slow.Add(1)
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		later.file = f
		_, err = f.Write(b[:half])
		return &later, err
	case way < 998: // like one that opens its file for each part
		a.halves.Add(1)
		return &later, os.WriteFile(path, b[:half], 0o644)
	default: // like one that dies
		a.never.Add(1)
		return nil, os.WriteFile(path+".tmp", b[:half], 0o644)
	}
}

// rsync transfers the staged shards: with their old times, each under a temporary name first.
func (a *arrivals) rsync() error {
	out, err := exec.Command("rsync", "-a", "--remove-source-files", a.staged+"/", a.dir+"/").CombinedOutput()
	if err != nil {
		return fmt.Errorf("rsync: %w: %s", err, out)
	}
	a.rsynced.Add(int64(a.waiting))
	a.waiting = 0
	return nil
}

func (u *unfinished) finish() error {
	if u.file == nil {
		f, err := os.OpenFile(u.path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		u.file = f
	}
	if _, err := u.file.Write(u.rest); err != nil {
		return err
	}
	return u.file.Close()
}
