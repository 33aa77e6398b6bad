package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// measureFetch reads streams in this process: everything that a mount does except FUSE.
func (s *session) measureFetch(ctx context.Context) (reading, error) {
	r := reading{counted: true, mallocs: -1}
	until := s.slot
	if s.warming {
		until = time.Hour // a whole epoch
	}
	for i := 0; i < epochs && r.elapsed < until && (i == 0 || !s.warming); i++ {
		if err := s.fetchEpoch(ctx, until-r.elapsed, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// fetchEpoch reads an epoch for up to most and adds the results to r.
func (s *session) fetchEpoch(ctx context.Context, most time.Duration, r *reading) error {
	epoch := uint64(0)
	if s.scope.whole {
		epoch = s.epoch
		s.epoch++
	}
	deal := spec.Assignment{Workers: 1, Batch: 1, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	set, err := s.dataset.Set(ctx, epoch, nil, deal)
	if err != nil {
		return err
	}
	if _, err := set.SizeBytes(ctx, 0, stream.Data); err != nil {
		return err
	}
	h := set.Open(0, stream.Data)
	defer h.Close()
	before := s.dataset.Status().Engine
	counted := countedStream{h: h, end: s.scope.bytes}
	cpu, began := ownCPU(), monotonic()
	if err := counted.read(ctx, began+most); err != nil {
		return err
	}
	r.elapsed += monotonic() - began
	r.cpu += ownCPU() - cpu
	r.bytes += counted.off
	after := s.dataset.Status().Engine
	r.reads += after.Reads - before.Reads
	r.readBytes += after.ReadBytes - before.ReadBytes
	if bytes, mallocs := counted.steady(); bytes > 0 {
		r.mallocs = float64(mallocs) / (float64(bytes) / s.scope.recordBytes)
	}
	return nil
}

// countedStream reads a stream from its beginning and counts the allocations of the second half, so
// that those made once when opening are left out.
type countedStream struct {
	h    *stream.Handle
	end  int64
	off  int64
	half int64 // where counting began; 0: not yet
	at   runtime.MemStats
}

// read reads until a time or to the end.
func (c *countedStream) read(ctx context.Context, until time.Duration) error {
	var reply stream.Reply
	for c.off < c.end && monotonic() < until {
		if c.half == 0 && c.off >= c.end/2 && c.off > 0 {
			c.half = c.off
			runtime.ReadMemStats(&c.at)
		}
		if err := c.h.ReadAt(ctx, &reply, c.off, stream.MaxReadBytes); err != nil {
			return err
		}
		n := reply.Len()
		reply.Release()
		c.off += int64(n)
		if n == 0 {
			break
		}
	}
	return nil
}

// steady returns the number of bytes read while allocations were counted, and the number of
// allocations.
func (c *countedStream) steady() (bytes int64, mallocs uint64) {
	if c.half == 0 {
		return 0, 0
	}
	began := c.at.Mallocs
	runtime.ReadMemStats(&c.at)
	return c.off - c.half, c.at.Mallocs - began
}

// measureCat makes `lsiofs cat` write the first epoch to a pipe, which a reader reads as it reads
// from a mount.
func (s *session) measureCat(ctx context.Context) (r reading, err error) {
	if err := touchMemory(ctx, s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return reading{}, err
	}
	defer from.Close()
	widenPipe(to)
	reader, err := startReader(s.program.Self, from)
	if err != nil {
		return reading{}, errors.Join(err, to.Close())
	}
	defer reader.kill()
	began := monotonic()
	cat, err := startCat(s.program.Lsiofs, s.catArgs(), to, s.log)
	if err = errors.Join(err, to.Close()); err != nil {
		return reading{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cat.Process.Kill() })
	defer stop()
	j := readJob{Paths: []string{"/dev/fd/3"}, StopAfter: s.epochTime()}
	if !s.scope.whole {
		j.PathBytes = s.scope.bytes
	}
	if err := reader.start(j); err != nil {
		return reading{}, err
	}
	_ = from.Close() // otherwise cat would not notice that its reader is gone
	done, err := reader.finish()
	if err != nil {
		_ = cat.Process.Kill()
	}
	reader.kill()
	werr := cat.Wait()
	if err != nil || ctx.Err() != nil {
		return reading{}, errors.Join(ctx.Err(), err)
	}
	if werr != nil && done.Bytes == s.scope.streamBytes { // otherwise its reader went away
		return reading{}, fmt.Errorf("lsiofs cat: %w", werr)
	}
	r = joined([]readDone{done}, !s.scope.compressed)
	if s.scope.compressed {
		r.elapsed = done.Ended - began
	}
	r.cpu += cat.ProcessState.UserTime() + cat.ProcessState.SystemTime()
	r.mallocs = -1
	return r, nil
}

// catArgs returns arguments for the first epoch of a single worker, whatever the flags are.
func (s *session) catArgs() []string {
	args := append([]string{s.config.Spec.Dataset}, s.config.Flags...)
	return append(args, "--workers", "1", "--worker", "0/1", "--epoch", "0")
}
