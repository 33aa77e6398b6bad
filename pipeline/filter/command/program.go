package command

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Program is a command line. It is safe for concurrent use.
type Program struct {
	path    string // path of the executable
	argv    []string
	timeout time.Duration
	said    func(about, line string)
	summed  executable // the one that Sum read
}

// executable distinguishes a file from one that replaces it.
type executable struct {
	device, inode uint64
	sizeBytes     int64
	modTime       unix.Timespec
}

func newExecutable(s *unix.Stat_t) executable {
	return executable{uint64(s.Dev), s.Ino, s.Size, s.Mtim}
}

// ErrReplaced is wrapped by Same's error.
var ErrReplaced = errors.New("it was replaced while the filter ran, so it is not known which one made the last results: run the filter again, which filters all shards with the new one")

// ErrNotFound is wrapped by Find's error if there is no such program.
var ErrNotFound = errors.New("name an executable file, or a program in PATH, after --")

// Find looks up the executable of argv, as a shell does. timeout limits a run, or a reply of a
// Server. said is called with each line that a process writes to stderr, and the shard it is about;
// it is called concurrently.
func Find(argv []string, timeout time.Duration, said func(about, line string)) (*Program, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("command %s: %w: %w", argv[0], errors.Unwrap(err), ErrNotFound)
	}
	return &Program{path: path, argv: argv, timeout: timeout, said: said}, nil
}

// Same returns an error if the executable is no longer the one that Sum read. Sum must have been
// called before.
func (p *Program) Same() error {
	var now unix.Stat_t
	if err := unix.Stat(p.path, &now); err != nil {
		return fmt.Errorf("command %s: %w: %w", p.argv[0], err, ErrReplaced)
	}
	if newExecutable(&now) != p.summed {
		return fmt.Errorf("command %s: %w", p.argv[0], ErrReplaced)
	}
	return nil
}

// Sum returns the SHA-256 of the command line, the additional texts, and the executable's bytes. It
// must be called once, before the program runs.
func (p *Program) Sum(more ...string) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, texts := range [][]string{p.argv, more} {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(texts)))
		for _, t := range texts {
			_ = binary.Write(h, binary.LittleEndian, uint64(len(t)))
			_, _ = io.WriteString(h, t)
		}
	}
	f, err := os.Open(p.path)
	if err == nil {
		var is unix.Stat_t
		if err = unix.Fstat(int(f.Fd()), &is); err == nil {
			p.summed = newExecutable(&is)
			_, err = io.Copy(h, f)
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return sum, fmt.Errorf("read the command's executable: %w", err)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// Pipe runs the program with a file as its stdin, and calls read with its stdout, which read must
// read to the end. The file is closed. If the program fails, the data passed to read is not valid.
func (p *Program) Pipe(ctx context.Context, about string, stdin *os.File, read func(io.Reader) error) error {
	x, err := start(p, p.argv, stdin, about, false)
	if err != nil {
		return err
	}
	defer x.limit(p.timeout)()
	defer context.AfterFunc(ctx, x.Stop)()
	readErr := read(x.Stdout)
	if readErr != nil {
		x.Stop() // it may wait for a reader
	}
	_ = x.Stdout.Close()
	err = x.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(readErr, os.ErrDeadlineExceeded):
		return errors.New("it ended, and another program that it had started still holds its stdout")
	case readErr != nil:
		return readErr
	}
	return err
}

// Run runs the program with {name} replaced in its arguments, for each name in values. Its stdout
// is treated like its stderr.
func (p *Program) Run(ctx context.Context, about string, values map[string]string) error {
	argv := make([]string, len(p.argv))
	for i, a := range p.argv {
		if i > 0 {
			for name, value := range values {
				a = strings.ReplaceAll(a, "{"+name+"}", value)
			}
		}
		argv[i] = a
	}
	x, err := start(p, argv, nil, about, true)
	if err != nil {
		return err
	}
	defer x.limit(p.timeout)()
	defer context.AfterFunc(ctx, x.Stop)()
	if err = x.Wait(); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ErrHandshake is wrapped by errors about a program that does not start as the protocol requires:
// it would not with another unit either.
var ErrHandshake = errors.New("with --by process a command has to answer " + Hello + " (lsiofs help filter)")

// Server is a process that answers units, one after another. It must not be used concurrently.
type Server struct {
	process *Process
	in      *os.File
	timeout time.Duration
	broken  bool
}

// Serve starts the program, and waits until it has answered the handshake.
func (p *Program) Serve(ctx context.Context, about string) (*Server, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, notStarted(p.argv, err)
	}
	x, err := start(p, p.argv, read, about, false)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	s := &Server{process: x, in: write, timeout: p.timeout}
	err = s.exchange(ctx, [][]byte{[]byte(Hello)}, func() error { return readHello(x.Stdout) })
	if err != nil {
		s.Kill()
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, ErrHandshake)
		}
		return nil, err
	}
	return s, nil
}

// Ask sends a unit and waits for the reply, of at most mostBytes. about is the unit's shard. After
// an error the server can't be used any more, and must be killed with Kill.
func (s *Server) Ask(ctx context.Context, about, name string, data []byte, mostBytes int64) (reply Reply, err error) {
	s.process.lines.of(about)
	head := appendRequest(nil, name, len(data))
	err = s.exchange(ctx, [][]byte{head, data}, func() error {
		reply, err = readReply(s.process.Stdout, mostBytes)
		return err
	})
	return reply, err
}

// exchange writes a message, and reads the reply at the same time.
func (s *Server) exchange(ctx context.Context, message [][]byte, read func() error) error {
	within := s.process.limit(s.timeout)
	going := context.AfterFunc(ctx, s.process.Stop)
	written := make(chan error, 1)
	go func() { // ends when the process has read it all, or has ended (waitFor)
		var err error
		for _, m := range message {
			if err == nil {
				_, err = s.in.Write(m)
			}
		}
		written <- err
	}()
	err := read()
	if err != nil {
		s.broken = true
		s.process.Stop()
	}
	if writeErr := s.waitFor(written); err == nil && writeErr != nil {
		s.broken = true
		err = fmt.Errorf("it answered, and did not read the unit: %w", writeErr)
	}
	within()
	if !going() { // it was stopped, perhaps after it had answered
		s.broken = true
		return ctx.Err()
	}
	switch {
	case s.process.timedOut.Load():
		return errTimedOut
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded):
		if ended := s.process.Wait(); ended != nil {
			return fmt.Errorf("its answer is not complete: %w", ended)
		}
		return errors.New("its answer is not complete: it ended, with exit status 0")
	}
	return err
}

// waitFor returns the error of writing. Once the process has ended, a process that it started and
// left behind may hold its stdin, and never read it: writing must end then too.
func (s *Server) waitFor(written <-chan error) error {
	select {
	case err := <-written:
		return err
	case <-s.process.ended:
	}
	_ = s.in.SetWriteDeadline(time.Now()) // an error: it is closed
	return <-written
}

// Close ends the process by closing its stdin, and returns an error if it did not end successfully.
// It may take as long as a reply.
func (s *Server) Close(ctx context.Context) error {
	if s.broken {
		s.Kill()
		return nil
	}
	_ = s.in.Close()
	defer s.process.limit(s.timeout)()
	defer context.AfterFunc(ctx, s.process.Stop)()
	n, _ := io.Copy(io.Discard, io.LimitReader(s.process.Stdout, 1<<20))
	_ = s.process.Stdout.Close()
	if err := s.process.Wait(); err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d bytes after its last answer: %w", n, errGarbage)
	}
	return nil
}

// Kill kills the process, and waits for its end.
func (s *Server) Kill() {
	_ = s.in.Close()
	s.process.Stop()
	_ = s.process.Stdout.Close()
	<-s.process.ended
}
