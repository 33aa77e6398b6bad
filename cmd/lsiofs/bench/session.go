package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Program defines how a session runs the program that it is part of.
type Program struct {
	// Self is the path of this executable, which has PartCommand.
	Self string
	// Lsiofs is the path of the lsiofs that is measured. It is Self, except in integration/bench.
	Lsiofs string
	// Version is shown in reports.
	Version string
	// Mount starts `lsiofs mount` with these arguments in a separate process, and returns when the
	// mount is ready. The caller owns the process.
	Mount func(ctx context.Context, args []string, output *os.File) (*exec.Cmd, error)
	// Open opens a dataset and shows progress if it has to be indexed.
	Open func(ctx context.Context, s spec.Spec) (*pipeline.Dataset, error)
	// Caches is true if the program has --cache-dir and --cache-size.
	Caches bool
	// Rings is true if mounts take requests through io_uring.
	Rings bool
}

// Session measures one dataset. It has servers, readers and temporary files. It is not safe for
// concurrent use.
type Session struct {
	Program Program
	Config  Config
	Dir     string   // for mount points
	Log     *os.File // output of servers
	points  int
	Slot    time.Duration

	dataset *pipeline.Dataset // in this process
	Scope   *Scope
	epoch   uint64 // the next epoch that has not been read

	Readers []*reader
	Servers []*Server // servers that stay
	ceiling *Server
	mount   *Server
	small   *Server // with little memory
	tensors *Server // has as many games as it keeps decoded, as tensors
	mixture *Server // of the dataset's halves
	opened  *Server // of a dataset of files, none of which it keeps
	warming bool

	lastWhole Reading // measureWhole's last result
	plain     string  // the decoded copy of the dataset
	kept      bool    // the cache has all decoded shards

	written bool // the shards' pages are clean
	cooled  bool // cool has gone through the shards in this round
}

func newSession(ctx context.Context, p Program, c Config) (*Session, error) {
	dir, err := os.MkdirTemp("", "lsiofs-bench-")
	if err != nil {
		return nil, err
	}
	s := &Session{Program: p, Config: c, Dir: dir}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open(ctx context.Context) (err error) {
	if s.Log, err = os.Create(filepath.Join(s.Dir, "servers.log")); err != nil {
		return err
	}
	if s.dataset, err = s.Program.Open(ctx, s.Config.Spec); err != nil {
		return err
	}
	s.Config.Tell("touching memory", 0, 0)
	if err := TouchMemory(ctx, 3*s.Config.Spec.MemoryBytes); err != nil {
		return err
	}
	// A mount, this process, and temporarily one more.
	free, err := pageCacheBytes(3 * s.Config.Spec.MemoryBytes)
	if err != nil {
		return err
	}
	if s.Scope, err = newScope(ctx, s.dataset, free); err != nil {
		return err
	}
	for range maxReaders {
		r, err := StartReader(s.Program.Self, nil)
		if err != nil {
			return err
		}
		s.Readers = append(s.Readers, r)
	}
	return nil
}

// maxReaders is the largest number of concurrent readers.
const maxReaders = 4

// Close ends all processes, unmounts, and removes everything.
func (s *Session) Close() error {
	var errs []error
	for _, r := range s.Readers {
		r.Kill()
	}
	for _, v := range slices.Backward(s.Servers) {
		errs = append(errs, v.Stop())
	}
	if s.dataset != nil {
		errs = append(errs, s.dataset.Close())
	}
	if s.Log != nil {
		errs = append(errs, s.Log.Close(), os.Remove(s.Log.Name()))
	}
	for _, dir := range []string{halvesDir, keptDir} {
		errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, dir))) // nothing is mounted in it
	}
	// Never remove recursively: a mount might be left there.
	return errors.Join(append(errs, os.Remove(s.Dir))...)
}

// NewPoint creates a directory to mount on.
func (s *Session) NewPoint() (string, error) {
	s.points++
	point := filepath.Join(s.Dir, strconv.Itoa(s.points))
	return point, os.Mkdir(point, 0o700)
}

// startMount mounts the dataset. The server is not among those that stay.
func (s *Session) startMount(ctx context.Context, args ...string) (*Server, error) {
	return s.startMountOf(ctx, s.Config.Spec.Dataset, args...)
}

// startMountOf is startMount for another dataset.
func (s *Session) startMountOf(ctx context.Context, dataset string, args ...string) (*Server, error) {
	point, err := s.NewPoint()
	if err != nil {
		return nil, err
	}
	return s.Program.MountOn(ctx, point, s.Log, append([]string{dataset, point}, append(slices.Clone(s.Config.Flags), args...)...))
}

// MountOn starts `lsiofs mount` with arguments that name a dataset and point, an empty directory.
// The directory is removed if mounting fails or when the server has stopped.
func (p Program) MountOn(ctx context.Context, point string, log *os.File, args []string) (*Server, error) {
	cmd, err := p.Mount(ctx, args, log)
	if err != nil {
		return nil, errors.Join(err, os.Remove(point))
	}
	return servedBy(cmd, point, nil), nil
}

// hotMount returns the mount that hot rows read, for any number of workers.
func (s *Session) hotMount(ctx context.Context) (*Server, error) {
	if s.mount != nil {
		return s.mount, nil
	}
	m, err := s.startMount(ctx, "--workers", "1")
	if err != nil {
		return nil, err
	}
	s.mount, s.Servers = m, append(s.Servers, m)
	return m, nil
}

// ceilingBytes is more than is read in any slot.
const ceilingBytes = 1 << 44

func (s *Session) ceilingMount(ctx context.Context) (*Server, error) {
	if s.ceiling != nil {
		return s.ceiling, nil
	}
	point, err := s.NewPoint()
	if err != nil {
		return nil, err
	}
	c, err := s.Program.startCeiling(ctx, point, ceilingBytes, s.Log)
	if err != nil {
		return nil, errors.Join(err, os.Remove(point))
	}
	s.ceiling, s.Servers = c, append(s.Servers, c)
	return c, nil
}

// together makes readers do their jobs at the same time.
func (s *Session) together(ctx context.Context, jobs []ReadJob) ([]ReadDone, error) {
	// A reader that waits for a mount can only be killed.
	stop := context.AfterFunc(ctx, func() {
		for _, r := range s.Readers {
			_ = r.Cmd.Process.Kill()
		}
	})
	defer stop()
	var errs []error
	for i, j := range jobs {
		errs = append(errs, s.Readers[i].Start(j))
	}
	done := make([]ReadDone, len(jobs))
	for i := range jobs {
		var err error
		done[i], err = s.Readers[i].finish()
		errs = append(errs, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return done, errors.Join(errs...)
}

// epochs is the maximum number of epochs for a slot's reader: a dataset keeps that many layouts.
const epochs = 4

// JobsOf returns what W readers of a mount read in a slot: some epochs that have not been read or,
// if only a part of the dataset is measured, that part repeatedly.
func (s *Session) JobsOf(point, extension string, workers int, slot time.Duration) []ReadJob {
	jobs := make([]ReadJob, workers)
	for i := range epochs {
		epoch := s.epoch + uint64(i)
		if !s.Scope.Whole {
			epoch = 0
		}
		for w := range jobs {
			path := filepath.Join(point, fmt.Sprintf("epoch-%d", epoch), fmt.Sprintf("worker-%d-of-%d%s", w, workers, extension))
			jobs[w].Paths = append(jobs[w].Paths, path)
			jobs[w].StopAfter = slot
			if !s.Scope.Whole {
				jobs[w].PathBytes = max(s.Scope.bytes/int64(workers), 1)
			}
		}
	}
	if s.Scope.Whole {
		s.epoch += epochs
	}
	return jobs
}

// ReadMount measures W readers of a server for a slot. Bytes before the first answer to a reader
// are not counted.
func (s *Session) ReadMount(ctx context.Context, v *Server, jobs []ReadJob) (Reading, error) {
	for _, j := range jobs {
		for _, path := range j.Paths {
			// This computes the size of a stream, once.
			if _, err := os.Stat(path); err != nil {
				return Reading{}, err
			}
		}
	}
	before, err := v.Look(true)
	if err != nil {
		return Reading{}, err
	}
	done, err := s.together(ctx, jobs)
	if err != nil {
		return Reading{}, err
	}
	after, err := v.Look(false)
	if err != nil {
		return Reading{}, err
	}
	r := Joined(done, true)
	r.CPU += after.CPU - before.CPU
	r.Counted, r.Mallocs = v.in == nil, -1
	r.Reads, r.ReadBytes = after.reads-before.reads, after.readBytes-before.readBytes
	return r, nil
}

// Joined adds up the work of concurrent readers. If late is set, it counts from the first answer
// on, unless that was all.
func Joined(done []ReadDone, late bool) Reading {
	var r Reading
	first, ended := done[0], done[0].Ended
	began := first.Began
	for _, d := range done {
		r.Bytes += d.Bytes
		r.CPU += d.CPU
		began, ended = min(began, d.Began), max(ended, d.Ended)
		if d.First < first.First {
			first = d
		}
	}
	if late && r.Bytes > first.FirstBytes {
		began = first.First
		r.Bytes -= first.FirstBytes
	}
	r.Elapsed = ended - began
	return r
}
