package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/fs"
)

// PartCommand is the hidden verb whose work Part does. A measurement consists of several processes,
// as real use does: a server that read from its own mount could deadlock, and processor time is
// counted by process.
const PartCommand = "bench-part"

// Part is the work of one process of a measurement:
//
//	serve POINT BYTES RINGS
//	                    mounts the ceiling, reports it on stdout, unmounts at the end of stdin
//	read                does jobs from stdin, a JSON object a line, and answers on stdout
func Part(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 4 && args[0] == "serve":
		size, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return err
		}
		return serveCeiling(ctx, fs.CeilingConfig{MountPoint: args[1], StreamBytes: size, Rings: args[3] == "true"}, in, out)
	case len(args) == 1 && args[0] == "read":
		return readAsTold(in, out)
	}
	return fmt.Errorf("%s is a process of lsiofs bench, which starts it", PartCommand)
}

// unmountTime bounds how long a ceiling waits for its readers to close.
const unmountTime = 5 * time.Second

func serveCeiling(ctx context.Context, c fs.CeilingConfig, in io.Reader, out io.Writer) error {
	fs.MoreThreads()
	m, err := fs.NewCeiling(ctx, c)
	if err != nil {
		return err
	}
	// If the process ends first, nothing waits for these two.
	ended, told := make(chan error, 1), make(chan struct{})
	go func() { ended <- m.Wait() }()
	go func() {
		defer close(told)
		_, _ = io.Copy(io.Discard, in)
	}()
	if _, err := fmt.Fprintln(out, "ready"); err == nil {
		select {
		case err := <-ended:
			return err
		case <-told:
		case <-ctx.Done():
		}
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmountTime)
	defer cancel()
	return m.Unmount(drain)
}

// ReadJob is a job for a reader.
type ReadJob struct {
	// Paths are read one after another, each from start to end, or to PathBytes if that is not 0.
	Paths     []string `json:"paths"`
	PathBytes int64    `json:"path_bytes"`
	// StopAfter ends the job between two reads; 0 means never.
	StopAfter time.Duration `json:"stop_after_nanos"`
}

// ReadDone is the result of a job. Times are by the clock that all processes of a machine share
// (CLOCK_MONOTONIC).
type ReadDone struct {
	Bytes      int64         `json:"bytes"`
	FirstBytes int64         `json:"first_bytes"` // size of the very first read
	Began      time.Duration `json:"began_nanos"`
	First      time.Duration `json:"first_nanos"` // when the first read was answered
	Ended      time.Duration `json:"ended_nanos"`
	CPU        time.Duration `json:"cpu_nanos"` // used by this process
	Error      string        `json:"error,omitempty"`
}

// readBytes is the size of a reader's requests, all into the same memory.
const readBytes = 1 << 20

func readAsTold(in io.Reader, out io.Writer) error {
	// In small pages, as malloc's memory, and aligned, as a large malloc's.
	buf, err := unix.Mmap(-1, 0, readBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("memory for reading: %w", err)
	}
	jobs, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var j ReadJob
		if err := jobs.Decode(&j); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		done, err := j.read(buf)
		if err != nil {
			done.Error = err.Error()
		}
		if err := answers.Encode(done); err != nil {
			return err
		}
	}
}

func (j ReadJob) read(buf []byte) (d ReadDone, err error) {
	cpu := OwnCPU()
	d.Began = Monotonic()
	for _, path := range j.Paths {
		more, err := j.readFile(path, buf, &d)
		if err != nil {
			return d, err
		}
		if !more {
			break
		}
	}
	d.Ended = Monotonic()
	d.CPU = OwnCPU() - cpu
	return d, nil
}

// readFile reads a file. more reports whether there is time for another one.
func (j ReadJob) readFile(path string, buf []byte, d *ReadDone) (more bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	fd := int(f.Fd())
	for left := j.PathBytes; ; {
		p := buf
		if j.PathBytes > 0 {
			p = buf[:min(int64(len(buf)), left)]
		}
		n, err := unix.Read(fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, fmt.Errorf("read %s: %w", path, err)
		case n == 0:
			return true, nil
		}
		if d.First == 0 {
			d.First, d.FirstBytes = Monotonic(), int64(n)
		}
		d.Bytes += int64(n)
		left -= int64(n)
		if j.StopAfter > 0 && Monotonic()-d.Began >= j.StopAfter {
			return false, nil
		}
	}
}

// Monotonic returns the time since a moment that is the same for all processes.
func Monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it always exists
	return time.Duration(t.Nano())
}

// OwnCPU returns the processor time that this process has used, in user space and in the kernel.
func OwnCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // its arguments are valid
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ProcessCPU is OwnCPU for another process, to the nanosecond (clock_getcpuclockid(3)).
func ProcessCPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
