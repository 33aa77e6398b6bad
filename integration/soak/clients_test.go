package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// client is a loop that uses a mount. Each of its turns ends by itself in bounded time.
type client struct {
	name string
	turn func(ctx context.Context, s *mounted, r *rand.Rand) error
	// rest is the longest pause between two turns.
	rest time.Duration
}

// clients all run at the same time on a mount.
var clients = []client{
	{"front to back", atSome(readOn), 20 * time.Millisecond},
	{"front to back", atSome(readOn), 20 * time.Millisecond},
	{"at random", atSome(readAnywhere), 20 * time.Millisecond},
	{"a mapping", atSome(readMapped), 50 * time.Millisecond},
	{"one that stops", atSome(stopAndGoOn), 50 * time.Millisecond},
	{"a program and signals", atSome(readBySignals), 100 * time.Millisecond},
	{"positions", moveAbout, 150 * time.Millisecond},
	{"onlooker", lookAround, 300 * time.Millisecond},
}

// run takes turns until ctx ends.
func (c client) run(ctx context.Context, s *mounted, r *rand.Rand) error {
	for ctx.Err() == nil {
		// Anything that hangs in the mount is woken when its server dies.
		hangs := time.AfterFunc(endLimit, func() { s.Cmd.Process.Kill() })
		err := c.turn(ctx, s, r)
		if !hangs.Stop() {
			return fmt.Errorf("%s: client %q hung for %v: its server was killed: %w", s.m.d.name, c.name, endLimit, err)
		}
		if err != nil {
			return fmt.Errorf("%s: client %q: %w; its server said: %s", s.m.d.name, c.name, err, s.Log)
		}
		pause(ctx, time.Duration(r.Int64N(int64(c.rest))))
	}
	return nil
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// compareAt reads once, and compares the result with want. It returns the number of bytes, and
// io.EOF at the end.
func (s *mounted) compareAt(f io.ReaderAt, want readable, buf []byte, off int64) (int, error) {
	n, err := f.ReadAt(buf, off)
	s.done.reads.Add(1)
	s.done.bytes.Add(int64(n))
	if off > want.size() {
		off, buf = want.size(), buf[:0]
	}
	if wrong := want.differs(off, buf[:n]); wrong != nil {
		return n, &wrongByte{wrong}
	}
	if err == io.EOF && off+int64(n) != want.size() {
		return n, &wrongByte{fmt.Errorf("ends at %d of %d bytes", off+int64(n), want.size())}
	}
	return n, err
}

// wrongByte is an error that not even a dying server may cause.
type wrongByte struct{ error }

// opening is a stream of a mount that a client has opened.
type opening struct {
	s    *mounted
	file *os.File
	want readable
	view *view // nil: it does not belong to a view, and never goes stale
}

// errStale is the error of a read from a view that a restore has ended.
var errStale = errors.New("the view has ended")

// atSome is a turn of a client that does something with one stream. Reaching the end of the stream,
// or of its view, is not an error.
func atSome(do func(ctx context.Context, o opening, r *rand.Rand) error) func(context.Context, *mounted, *rand.Rand) error {
	return func(ctx context.Context, s *mounted, r *rand.Rand) error {
		f, want, v, err := s.openSome(r)
		if err != nil {
			return err
		}
		defer f.Close()
		if err = do(ctx, opening{s, f, want, v}, r); err == io.EOF || err == errStale {
			return nil
		}
		return err
	}
}

// compareAt is mounted.compareAt on the file. It returns errStale and io.EOF unwrapped, and other
// errors with their location.
func (o opening) compareAt(buf []byte, off int64) (int, error) {
	return o.compareFrom(o.file, o.file.Name(), buf, off)
}

// compareFrom is compareAt for another way to read the file's bytes.
func (o opening) compareFrom(from io.ReaderAt, name string, buf []byte, off int64) (int, error) {
	n, err := o.s.compareAt(from, o.want, buf, off)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case o.s.isStale(err, o.view):
		return n, errStale
	}
	return n, fmt.Errorf("%s at %d: %w", name, off, err)
}

// sizeOfRead draws the size of a client's reads.
func sizeOfRead(r *rand.Rand) int {
	return 1 + r.IntN([]int{1 << 10, 64 << 10, 256 << 10, 3 << 20}[r.IntN(4)])
}

// readOn reads from front to back, mostly to the end.
func readOn(ctx context.Context, o opening, r *rand.Rand) error {
	end := o.want.size() + 1
	if r.IntN(3) == 0 {
		end = r.Int64N(end)
	}
	buf := make([]byte, max(4096, sizeOfRead(r)))
	for off := int64(0); off < end && ctx.Err() == nil; {
		n, err := o.compareAt(buf, off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// readAnywhere reads pieces at random offsets, including past the end.
func readAnywhere(ctx context.Context, o opening, r *rand.Rand) error {
	for range 20 {
		off := r.Int64N(o.want.size() + 100)
		if _, err := o.compareAt(make([]byte, sizeOfRead(r)), off); err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// mapping reads a mapping by having the kernel copy it, which returns an error where touching a
// page would kill the process.
type mapping struct {
	pages []byte
	copy  *os.File // in memory
}

func (m mapping) ReadAt(p []byte, off int64) (int, error) {
	from := m.pages[min(off, int64(len(m.pages))):]
	from = from[:min(len(p), len(from))]
	for at := 0; at < len(from); {
		n, err := m.copy.WriteAt(from[at:], int64(at))
		if at += n; err != nil {
			return 0, err
		}
	}
	n, err := m.copy.ReadAt(p[:len(from)], 0)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// readMapped maps a file and reads pieces of the mapping.
func readMapped(ctx context.Context, o opening, r *rand.Rand) error {
	size := o.want.size()
	if size == 0 {
		return nil
	}
	fd, err := unix.MemfdCreate("soak", 0)
	if err != nil {
		return err
	}
	m := mapping{copy: os.NewFile(uintptr(fd), "memory")}
	defer m.copy.Close()
	if m.pages, err = unix.Mmap(int(o.file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mmap of %s: %w", o.file.Name(), err)
	}
	defer unix.Munmap(m.pages)
	for range 8 {
		off := r.Int64N(size)
		_, err := o.compareFrom(m, "mapping of "+o.file.Name(), make([]byte, sizeOfRead(r)), off)
		if err != nil && err != io.EOF {
			return err
		}
		pause(ctx, time.Duration(r.IntN(20))*time.Millisecond)
	}
	return nil
}

// stopAndGoOn reads a little, keeps the file open for a while, and may repeat that.
func stopAndGoOn(ctx context.Context, o opening, r *rand.Rand) error {
	off := int64(0)
	for range 1 + r.IntN(3) {
		buf := make([]byte, sizeOfRead(r))
		n, err := o.compareAt(buf, off)
		if err != nil {
			return err
		}
		off += int64(n)
		pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	}
	return nil
}

// readBySignals makes cat read a file, stops and continues it, and mostly kills it by a signal
// before it is done.
func readBySignals(ctx context.Context, o opening, r *rand.Rand) error {
	cat := exec.Command("cat")
	cat.Stdin = o.file // cat reads the same open file, whose content is known
	out, err := cat.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cat.Start(); err != nil {
		return err
	}
	err = compareAmidstSignals(ctx, o.s, r, cat.Process, out, o.want)
	cat.Process.Kill() // if it is still alive
	waited := cat.Wait()
	if err != nil {
		return fmt.Errorf("cat of %s: %w", o.file.Name(), err)
	}
	if ended := (*exec.ExitError)(nil); errors.As(waited, &ended) && ended.ExitCode() > 0 && !o.s.isStale(syscall.ESTALE, o.view) {
		return fmt.Errorf("cat of %s: %w", o.file.Name(), waited)
	}
	return nil
}

// compareAmidstSignals reads a child's output until it ends.
func compareAmidstSignals(ctx context.Context, s *mounted, r *rand.Rand, child *os.Process, out io.Reader, want readable) error {
	last := r.Int64N(want.size()*3/2 + 1) // where it is killed
	buf := make([]byte, 64<<10)
	for off := int64(0); ; {
		n, err := out.Read(buf)
		if wrong := want.differs(off, buf[:n]); wrong != nil {
			return wrong
		}
		s.done.bytes.Add(int64(n))
		if off += int64(n); err != nil {
			return nil // the end of the output
		}
		switch {
		case off >= last || ctx.Err() != nil:
			last = want.size() * 2
			s.done.signals.Add(1)
			child.Signal([]os.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT}[r.IntN(3)])
		case r.IntN(20) == 0:
			s.done.signals.Add(1)
			child.Signal(syscall.SIGSTOP)
			pause(ctx, time.Duration(r.IntN(50))*time.Millisecond)
			child.Signal(syscall.SIGCONT)
		}
	}
}

// lookAround lists directories, looks at sizes, and reads the files that describe the mount.
func lookAround(ctx context.Context, s *mounted, r *rand.Rand) error {
	for _, name := range []string{"README", "status", "status.json", "metrics", "dataset.json"} {
		if b, err := os.ReadFile(s.path("%s", name)); err != nil || len(b) == 0 {
			return fmt.Errorf("%s: %d bytes, %w", name, len(b), err)
		}
	}
	if _, err := os.ReadDir(s.Dir); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for w := range s.m.s.number("workers") {
		want, err := s.m.stream(s.now.position, w, s.m.s.number("workers"))
		if err != nil {
			return err
		}
		info, err := os.Stat(s.path("worker-%d%s", w, s.m.d.ext))
		if err != nil {
			return err
		}
		if info.Size() != want.size() {
			return fmt.Errorf("%s has %d bytes, want %d", info.Name(), info.Size(), want.size())
		}
	}
	return nil
}
