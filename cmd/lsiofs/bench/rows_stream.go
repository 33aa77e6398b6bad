package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// measureFetch reads streams in this process: everything that a mount does except FUSE.
func (s *Session) measureFetch(ctx context.Context) (Reading, error) {
	r := Reading{Counted: true, Mallocs: -1}
	until := s.Slot
	if s.warming {
		until = time.Hour // a whole epoch
	}
	for i := 0; i < epochs && r.Elapsed < until && (i == 0 || !s.warming); i++ {
		if err := s.fetchEpoch(ctx, until-r.Elapsed, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// fetchEpoch reads an epoch for up to most and adds the results to r.
func (s *Session) fetchEpoch(ctx context.Context, most time.Duration, r *Reading) error {
	epoch := uint64(0)
	if s.Scope.Whole {
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
	counted := countedStream{h: h, end: s.Scope.bytes}
	cpu, began := OwnCPU(), Monotonic()
	if err := counted.read(ctx, began+most); err != nil {
		return err
	}
	r.Elapsed += Monotonic() - began
	r.CPU += OwnCPU() - cpu
	r.Bytes += counted.off
	after := s.dataset.Status().Engine
	r.Reads += after.Reads - before.Reads
	r.ReadBytes += after.ReadBytes - before.ReadBytes
	if bytes, mallocs := counted.steady(); bytes > 0 {
		r.Mallocs = float64(mallocs) / (float64(bytes) / s.Scope.recordBytes)
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
	for c.off < c.end && Monotonic() < until {
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
func (s *Session) measureCat(ctx context.Context) (r Reading, err error) {
	if err := TouchMemory(ctx, s.newProcessBytes()); err != nil {
		return Reading{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return Reading{}, err
	}
	defer from.Close()
	WidenPipe(to)
	reader, err := StartReader(s.Program.Self, from)
	if err != nil {
		return Reading{}, errors.Join(err, to.Close())
	}
	defer reader.Kill()
	began := Monotonic()
	cat, err := startCat(s.Program.Lsiofs, s.catArgs(), to, s.Log)
	if err = errors.Join(err, to.Close()); err != nil {
		return Reading{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cat.Process.Kill() })
	defer stop()
	j := ReadJob{Paths: []string{"/dev/fd/3"}, StopAfter: s.epochTime()}
	if !s.Scope.Whole {
		j.PathBytes = s.Scope.bytes
	}
	if err := reader.Start(j); err != nil {
		return Reading{}, err
	}
	_ = from.Close() // otherwise cat would not notice that its reader is gone
	done, err := reader.finish()
	if err != nil {
		_ = cat.Process.Kill()
	}
	reader.Kill()
	werr := cat.Wait()
	if err != nil || ctx.Err() != nil {
		return Reading{}, errors.Join(ctx.Err(), err)
	}
	if werr != nil && done.Bytes == s.Scope.streamBytes { // otherwise its reader went away
		return Reading{}, fmt.Errorf("lsiofs cat: %w", werr)
	}
	r = Joined([]ReadDone{done}, !s.Scope.Compressed)
	if s.Scope.Compressed {
		r.Elapsed = done.Ended - began
	}
	r.CPU += cat.ProcessState.UserTime() + cat.ProcessState.SystemTime()
	r.Mallocs = -1
	return r, nil
}

// catArgs returns arguments for the first epoch of a single worker, whatever the flags are.
func (s *Session) catArgs() []string {
	args := append([]string{s.Config.Spec.Dataset}, s.Config.Flags...)
	return append(args, "--workers", "1", "--worker", "0/1", "--epoch", "0")
}

// measureTar makes GNU tar write an archive of all files to a pipe, whose bytes are discarded. (If
// it wrote to /dev/null itself, it would not read the files.)
func (s *Session) measureTar(ctx context.Context) (Reading, error) {
	if !s.Scope.Whole {
		return Reading{}, NotMeasured("the page cache can't hold the files")
	}
	from, to, err := os.Pipe()
	if err != nil {
		return Reading{}, err
	}
	defer from.Close()
	WidenPipe(to)
	tar := exec.CommandContext(ctx, "tar", "-cf", "-", "-C", s.dataset.Catalog().Root(), ".")
	tar.Stdout = to
	began := Monotonic()
	if err := errors.Join(tar.Start(), to.Close()); err != nil {
		return Reading{}, NotMeasured("%w", err)
	}
	_, rerr := io.Copy(io.Discard, onlyReader{from})
	werr := tar.Wait()
	if ctx.Err() != nil {
		return Reading{}, ctx.Err()
	}
	if err := errors.Join(rerr, werr); err != nil {
		return Reading{}, fmt.Errorf("%s: %w", strings.Join(tar.Args, " "), err)
	}
	return Reading{
		Bytes: s.Scope.streamBytes, Elapsed: Monotonic() - began, Mallocs: -1,
		CPU: tar.ProcessState.UserTime() + tar.ProcessState.SystemTime(),
	}, nil
}

// onlyReader hides all other methods of a file, so that its bytes are really read.
type onlyReader struct{ io.Reader }

// measureOpened reads from a mount that opens and reads each file, and keeps none.
func (s *Session) measureOpened(ctx context.Context) (Reading, error) {
	if s.opened == nil {
		m, err := s.startMount(ctx, "--workers", "1", "--read", "gather")
		if err != nil {
			return Reading{}, err
		}
		s.opened, s.Servers = m, append(s.Servers, m)
	}
	return s.ReadMount(ctx, s.opened, s.JobsOf(s.opened.Point, s.Scope.extension, 1, s.Slot))
}

// warmFiles fills the page cache with the files of a dataset of directories.
func (s *Session) warmFiles(ctx context.Context) error {
	buffer := make([]byte, 1<<20)
	return filepath.WalkDir(s.dataset.Catalog().Root(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(io.Discard, onlyReader{f}, buffer)
		return errors.Join(err, f.Close(), ctx.Err())
	})
}
