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

// session measures one dataset. It has servers, readers and temporary files. It is not safe for
// concurrent use.
type session struct {
	program Program
	config  Config
	dir     string   // for mount points
	log     *os.File // output of servers
	points  int
	slot    time.Duration

	dataset *pipeline.Dataset // in this process
	scope   *scope
	epoch   uint64 // the next epoch that has not been read

	readers []*reader
	servers []*server // servers that stay
	ceiling *server
	mount   *server
	small   *server // with little memory
	tensors *server // has as many games as it keeps decoded, as tensors
	mixture *server // of the dataset's halves
	opened  *server // of a dataset of files, none of which it keeps
	warming bool

	lastWhole reading // measureWhole's last result

	written bool // the shards' pages are clean
	cooled  bool // cool has gone through the shards in this round
}

func newSession(ctx context.Context, p Program, c Config) (*session, error) {
	dir, err := os.MkdirTemp("", "lsiofs-bench-")
	if err != nil {
		return nil, err
	}
	s := &session{program: p, config: c, dir: dir}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) open(ctx context.Context) (err error) {
	if s.log, err = os.Create(filepath.Join(s.dir, "servers.log")); err != nil {
		return err
	}
	if s.dataset, err = s.program.Open(ctx, s.config.Spec); err != nil {
		return err
	}
	s.config.progress("touching memory", 0, 0)
	if err := touchMemory(ctx, 3*s.config.Spec.MemoryBytes); err != nil {
		return err
	}
	// A mount, this process, and temporarily one more.
	free, err := pageCacheBytes(3 * s.config.Spec.MemoryBytes)
	if err != nil {
		return err
	}
	if s.scope, err = newScope(ctx, s.dataset, free); err != nil {
		return err
	}
	for range maxReaders {
		r, err := startReader(s.program.Self, nil)
		if err != nil {
			return err
		}
		s.readers = append(s.readers, r)
	}
	return nil
}

// maxReaders is the largest number of concurrent readers.
const maxReaders = 4

// close ends all processes, unmounts, and removes everything.
func (s *session) close() error {
	var errs []error
	for _, r := range s.readers {
		r.kill()
	}
	for _, v := range slices.Backward(s.servers) {
		errs = append(errs, v.stop())
	}
	if s.dataset != nil {
		errs = append(errs, s.dataset.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close(), os.Remove(s.log.Name()))
	}
	errs = append(errs, os.RemoveAll(filepath.Join(s.dir, halvesDir))) // nothing is mounted in it
	// Never remove recursively: a mount might be left there.
	return errors.Join(append(errs, os.Remove(s.dir))...)
}

// newPoint creates a directory to mount on.
func (s *session) newPoint() (string, error) {
	s.points++
	point := filepath.Join(s.dir, strconv.Itoa(s.points))
	return point, os.Mkdir(point, 0o700)
}

// startMount mounts the dataset. The server is not among those that stay.
func (s *session) startMount(ctx context.Context, args ...string) (*server, error) {
	point, err := s.newPoint()
	if err != nil {
		return nil, err
	}
	return s.program.mountOn(ctx, point, s.log, append([]string{s.config.Spec.Dataset, point}, append(slices.Clone(s.config.Flags), args...)...))
}

// mountOn starts `lsiofs mount` with arguments that name a dataset and point, an empty directory.
// The directory is removed if mounting fails or when the server has stopped.
func (p Program) mountOn(ctx context.Context, point string, log *os.File, args []string) (*server, error) {
	cmd, err := p.Mount(ctx, args, log)
	if err != nil {
		return nil, errors.Join(err, os.Remove(point))
	}
	return servedBy(cmd, point, nil), nil
}

// hotMount returns the mount that hot rows read, for any number of workers.
func (s *session) hotMount(ctx context.Context) (*server, error) {
	if s.mount != nil {
		return s.mount, nil
	}
	m, err := s.startMount(ctx, "--workers", "1")
	if err != nil {
		return nil, err
	}
	s.mount, s.servers = m, append(s.servers, m)
	return m, nil
}

// ceilingBytes is more than is read in any slot.
const ceilingBytes = 1 << 44

func (s *session) ceilingMount(ctx context.Context) (*server, error) {
	if s.ceiling != nil {
		return s.ceiling, nil
	}
	point, err := s.newPoint()
	if err != nil {
		return nil, err
	}
	c, err := s.program.startCeiling(ctx, point, ceilingBytes, s.log)
	if err != nil {
		return nil, errors.Join(err, os.Remove(point))
	}
	s.ceiling, s.servers = c, append(s.servers, c)
	return c, nil
}

// together makes readers do their jobs at the same time.
func (s *session) together(ctx context.Context, jobs []readJob) ([]readDone, error) {
	// A reader that waits for a mount can only be killed.
	stop := context.AfterFunc(ctx, func() {
		for _, r := range s.readers {
			_ = r.cmd.Process.Kill()
		}
	})
	defer stop()
	var errs []error
	for i, j := range jobs {
		errs = append(errs, s.readers[i].start(j))
	}
	done := make([]readDone, len(jobs))
	for i := range jobs {
		var err error
		done[i], err = s.readers[i].finish()
		errs = append(errs, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return done, errors.Join(errs...)
}

// epochs is the maximum number of epochs for a slot's reader: a dataset keeps that many layouts.
const epochs = 4

// jobsOf returns what W readers of a mount read in a slot: some epochs that have not been read or,
// if only a part of the dataset is measured, that part repeatedly.
func (s *session) jobsOf(point, extension string, workers int, slot time.Duration) []readJob {
	jobs := make([]readJob, workers)
	for i := range epochs {
		epoch := s.epoch + uint64(i)
		if !s.scope.whole {
			epoch = 0
		}
		for w := range jobs {
			path := filepath.Join(point, fmt.Sprintf("epoch-%d", epoch), fmt.Sprintf("worker-%d-of-%d%s", w, workers, extension))
			jobs[w].Paths = append(jobs[w].Paths, path)
			jobs[w].StopAfter = slot
			if !s.scope.whole {
				jobs[w].PathBytes = max(s.scope.bytes/int64(workers), 1)
			}
		}
	}
	if s.scope.whole {
		s.epoch += epochs
	}
	return jobs
}

// readMount measures W readers of a server for a slot. Bytes before the first answer to a reader
// are not counted.
func (s *session) readMount(ctx context.Context, v *server, jobs []readJob) (reading, error) {
	for _, j := range jobs {
		for _, path := range j.Paths {
			// This computes the size of a stream, once.
			if _, err := os.Stat(path); err != nil {
				return reading{}, err
			}
		}
	}
	before, err := v.look(true)
	if err != nil {
		return reading{}, err
	}
	done, err := s.together(ctx, jobs)
	if err != nil {
		return reading{}, err
	}
	after, err := v.look(false)
	if err != nil {
		return reading{}, err
	}
	r := joined(done, true)
	r.cpu += after.cpu - before.cpu
	r.counted, r.mallocs = v.in == nil, -1
	r.reads, r.readBytes = after.reads-before.reads, after.readBytes-before.readBytes
	return r, nil
}

// joined adds up the work of concurrent readers. If late is set, it counts from the first answer
// on, unless that was all.
func joined(done []readDone, late bool) reading {
	var r reading
	first, ended := done[0], done[0].Ended
	began := first.Began
	for _, d := range done {
		r.bytes += d.Bytes
		r.cpu += d.CPU
		began, ended = min(began, d.Began), max(ended, d.Ended)
		if d.First < first.First {
			first = d
		}
	}
	if late && r.bytes > first.FirstBytes {
		began = first.First
		r.bytes -= first.FirstBytes
	}
	r.elapsed = ended - began
	return r
}
