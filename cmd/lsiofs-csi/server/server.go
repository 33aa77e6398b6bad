package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
)

// Config describes the server to start.
type Config struct {
	Program     string   // of lsiofs
	Args        []string // flags of mount
	Dataset     string   // "" for a mixture
	Point       string   // the mount point, an empty directory
	Environment []string
	Log         *os.File // its stderr
	// Started is called with the process before anything is waited for. If it fails, the process is
	// ended. A process that has not been recorded mounts nothing if the driver dies.
	Started func(state.Process) error
}

// Server is a process that serves a mount, or is about to. Its methods are safe for concurrent use.
type Server struct {
	process state.Process
	point   string
	child   *exec.Cmd // nil if the server was adopted
	pidfd   *os.File
	words   *os.File      // a child's messages until it is ready
	ready   chan struct{} // closed when it serves or never will
	ended   chan struct{} // closed when the process has ended, or after Release
	wait    sync.WaitGroup
	reading chan struct{} // has an element while Read's goroutine runs

	mu       sync.Mutex
	doing    string
	failed   *Failure
	serves   bool
	released bool
}

// Failure is why a server could not start, in lsiofs' own words.
type Failure struct {
	Text string `json:"text"`
	Code int    `json:"code"` // lsiofs' exit code
}

func (f *Failure) Error() string { return f.Text }

// Start starts a server and returns when its process is running.
func Start(c Config) (*Server, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	args := append([]string{"mount", "--ready-fd=3", "--allow-other", "--readers=all", "--restore=all"}, c.Args...)
	args = append(args, "--")
	if c.Dataset != "" {
		args = append(args, c.Dataset)
	}
	cmd := exec.Command(c.Program, append(args, c.Point)...)
	cmd.Env, cmd.Dir = c.Environment, "/"
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("start a server: %w", errors.Join(err, r.Close()))
	}
	s := &Server{point: c.Point, child: cmd, words: r, ready: make(chan struct{}), ended: make(chan struct{}), reading: make(chan struct{}, 1), doing: "starting"}
	err = s.watchChild(c.Started)
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("start a server: %w", errors.Join(err, r.Close(), ignoreExit(cmd.Wait())))
	}
	return s, nil
}

func (s *Server) watchChild(started func(state.Process) error) (err error) {
	// It may have ended already, after reporting an error. It has not been waited for, so its
	// number can't have been reused.
	if s.process, _, err = identify(s.child.Process.Pid); err != nil {
		return err
	}
	if err := started(s.process); err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(s.process.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return err
	}
	s.pidfd = os.NewFile(uintptr(fd), fmt.Sprintf("process %d", s.process.PID))
	s.wait.Go(s.listen)
	s.wait.Go(s.watch)
	return nil
}

// Adopt takes over a server that an earlier driver started and that serves. It returns ESRCH if the
// process has ended.
func Adopt(p state.Process, point string) (*Server, error) {
	f, err := open(p)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.PID, err)
	}
	s := &Server{process: p, point: point, pidfd: f, ready: make(chan struct{}), ended: make(chan struct{}), reading: make(chan struct{}, 1), serves: true, doing: "serving"}
	close(s.ready)
	s.wait.Go(s.watch)
	return s, nil
}

// message is a child's message while it starts; lsiofs' --ready-fd writes one line of JSON for
// each.
type message struct {
	Progress *struct {
		Shards, ShardsTotal int
		Done                bool
	} `json:"progress"`
	Filling *struct {
		Bytes int64 `json:"filled_bytes"`
		Total int64 `json:"filled_bytes_total"`
	} `json:"filling"`
	Waiting *struct {
		For string `json:"waiting"`
	} `json:"waiting"`
	Mounted *struct{} `json:"mounted"`
	Error   *Failure  `json:"error"`
}

// listen receives a child's messages until it serves or has failed.
func (s *Server) listen() {
	defer close(s.ready)
	defer s.words.Close()
	words := json.NewDecoder(s.words)
	for {
		var m message
		if words.Decode(&m) != nil {
			s.fail(&Failure{Text: "the server ended before it had mounted, and did not say why: see the driver's log"})
			return
		}
		switch {
		case m.Progress != nil && m.Progress.Done:
			s.says("mounting")
		case m.Progress != nil:
			s.says(fmt.Sprintf("indexing: %d of %d shards", m.Progress.Shards, m.Progress.ShardsTotal))
		case m.Filling != nil:
			s.says(fmt.Sprintf("filling the cache: %d of %d MiB", m.Filling.Bytes>>20, m.Filling.Total>>20))
		case m.Waiting != nil:
			s.says("waiting for " + m.Waiting.For)
		case m.Error != nil:
			s.fail(m.Error)
			return
		case m.Mounted != nil:
			s.mu.Lock()
			s.serves, s.doing = true, "serving"
			s.mu.Unlock()
			return
		}
	}
}

func (s *Server) says(doing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = doing
}

func (s *Server) fail(f *Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.doing = f, "failed"
}

// watch waits for the end of the process and reaps a child.
func (s *Server) watch() {
	defer close(s.ended)
	if waitFor(s.pidfd) && s.child != nil {
		_ = s.child.Wait() // its log has the reason for its end
	}
}

// Process returns the server's process.
func (s *Server) Process() state.Process { return s.process }

// Doing describes what the server is doing.
func (s *Server) Doing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doing
}

// Ended returns a channel that is closed when the process has ended.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Alive reports whether the process is alive and has not failed to mount.
func (s *Server) Alive() bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed == nil
}

// Ready waits until it serves. The error is a *Failure if it never will, otherwise ctx's.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	return nil
}

// How long a stopping server may take before it is signalled, signalled again, and killed. Usually
// its files are no longer open, and it ends at once.
const (
	stopAfter = 2 * time.Second
	killAfter = 5 * time.Second
)

// Stop removes the mount and waits for the server's end. If that takes long, it sends signals.
// Remaining readers get errors.
func (s *Server) Stop() error {
	var err error
	if s.Serving() {
		err = mounts.Detach(s.point)
	} else {
		s.tell(unix.SIGTERM)
	}
	for _, then := range []struct {
		after time.Duration
		tell  unix.Signal
	}{{stopAfter, unix.SIGTERM}, {stopAfter / 10, unix.SIGTERM}, {killAfter, unix.SIGKILL}} {
		timer := time.NewTimer(then.after)
		select {
		case <-s.ended:
			timer.Stop()
			s.Release()
			return errors.Join(err, mounts.Detach(s.point))
		case <-timer.C:
			s.tell(then.tell)
		}
	}
	<-s.ended // after SIGKILL the kernel ends it
	s.Release()
	return errors.Join(err, mounts.Detach(s.point))
}

// Serving reports whether it has mounted.
func (s *Server) Serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serves
}

func (s *Server) tell(sig unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.released {
		_ = signal(s.pidfd, sig) // an error means that it has ended
	}
}

// Release releases the process, which keeps running, and waits for the goroutines. It may be called
// again.
func (s *Server) Release() {
	s.mu.Lock()
	if !s.released {
		s.released = true
		_ = s.pidfd.Close()
		if s.words != nil {
			_ = s.words.Close()
		}
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// ignoreExit drops the error of a process that was killed on purpose.
func ignoreExit(err error) error {
	if _, is := errors.AsType[*exec.ExitError](err); is {
		return nil
	}
	return err
}

// boot returns the ID of the machine's current boot.
var boot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// identify returns the identity of a process, and reports whether it is alive. A zombie is not.
func identify(pid int) (p state.Process, lives bool, err error) {
	id, err := boot()
	if err != nil {
		return p, false, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false, err
	}
	// The second field, the name, may contain anything. It ends with the last ")".
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return p, false, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	s := fields[0][0]
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	return state.Process{PID: pid, Ticks: ticks, Boot: id}, s != 'Z' && s != 'X', err
}

// open returns a pidfd of the stored process, and not of another one with the same number.
func open(p state.Process) (*os.File, error) {
	if p.PID <= 0 {
		return nil, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("process %d", p.PID))
	if now, lives, err := identify(p.PID); err != nil || !lives || now != p {
		return nil, errors.Join(unix.ESRCH, f.Close())
	}
	return f, nil
}

// waitFor waits until the process has ended, and returns true, or until the pidfd is closed, and
// returns false.
func waitFor(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	}) == nil
}

// signal sends a signal to exactly the process of a pidfd.
func signal(pidfd *os.File, s unix.Signal) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	return sent
}

// Kill kills a process if it is alive, and waits for its end. A mount that it made stays behind,
// dead.
func Kill(p state.Process) error {
	f, err := open(p)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer f.Close()
	if err := signal(f, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	waitFor(f)
	return nil
}

// maxTextBytes bounds a file read from a mount. status.json of a mount with 64 workers has some 30
// KiB.
const maxTextBytes = 16 << 20

// Read reads a small file of the mount, such as status.json. A stopped server can't block the
// caller beyond ctx: the read continues in a goroutine, of which there is at most one, and which
// ends with the server.
func (s *Server) Read(ctx context.Context, name string) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("the server (process %d) does not answer: %w", s.process.PID, ctx.Err())
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := readBounded(filepath.Join(s.point, name))
		answers <- answer{text, err}
		<-s.reading
	}()
	select {
	case a := <-answers:
		return a.text, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the server (process %d) does not answer: %w", s.process.PID, ctx.Err())
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTextBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxTextBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxTextBytes)
	}
	return text, nil
}
