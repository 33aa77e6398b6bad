// Package serve runs the program under test as the server of a mount: it builds the program, starts
// it in a child process, waits for its mount, and finds what it leaves behind. The tests of
// integration, integration/soak and integration/hunt use it for that. Other tests use its helpers
// for all tests: Tier, Alone, Missing, Seed and Until; Scratch and ShortDir.
//
// A test never serves a mount itself. A process that reads from a mount that it serves can
// deadlock, and only another process can be killed.
package serve

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Build builds the program from the package in directory source into the file out, with the race
// detector if the tests have it.
//
// If the environment variable LSIOFS_BUILT names a program, out becomes that one: several processes
// with the same tests share one build. out is a hard link if the file system allows it, so that
// each process can tell its own servers by their path.
func Build(out, source string) error {
	if built := os.Getenv("LSIOFS_BUILT"); built != "" {
		if os.Link(built, out) == nil {
			return nil
		}
		b, err := os.ReadFile(built)
		if err != nil {
			return err
		}
		return os.WriteFile(out, b, 0o755)
	}
	// Without version control information: the tree may belong to another user.
	args := []string{"build", "-buildvcs=false", "-o", out}
	if RaceBuilt {
		args = append(args, "-race")
	}
	if text, err := exec.Command("go", append(args, source)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, text)
	}
	return nil
}

// Environment returns the environment of a program that a test starts: a cache of its own, so that
// no index of another run is found, and a temporary directory, which must be empty at the end. The
// service manager of the user who runs the tests is not notified of their mounts.
func Environment(tmp, cache string) []string {
	if tmp == longTemp {
		tmp = shortTemp
	}
	// By default a race-built program sleeps for a second before it exits.
	return append(os.Environ(), "GORACE=atexit_sleep_ms=1", "TMPDIR="+tmp, "XDG_CACHE_HOME="+cache, "PYTHONDONTWRITEBYTECODE=1", "NOTIFY_SOCKET=")
}

// Server is a child process that serves a mount, or is about to.
type Server struct {
	Dir string // the mount point
	Cmd *exec.Cmd
	// Log collects what the process writes to stderr.
	Log *Log
	// Exited is closed when the process has ended and was waited for.
	Exited <-chan struct{}
}

// Start starts cmd, which is to mount at dir, and does not wait for the mount. The caller ends the
// process. If the test program is killed first, the watcher of its scratch directory does.
func Start(cmd *exec.Cmd, dir string) (*Server, error) {
	s := &Server{Dir: dir, Cmd: cmd, Log: NewLog()}
	cmd.Stderr = s.Log
	exited, err := Launch(cmd)
	if err != nil {
		return nil, err
	}
	s.Exited = exited
	return s, nil
}

// WaitUntilMounted waits for the server's message that its mount answers. The mount table has it a
// little earlier, while the server is still checking the mount itself.
func (s *Server) WaitUntilMounted() error {
	for !s.Log.contains("\nmounted ") {
		select {
		case <-s.Exited:
			return fmt.Errorf("mount of %s ended with exit code %d: %s", s.Dir, s.Cmd.ProcessState.ExitCode(), s.Log)
		case <-s.Log.written:
		}
	}
	if !IsMount(s.Dir) {
		return fmt.Errorf("the server of %s says that it is mounted, and it is not: %s", s.Dir, s.Log)
	}
	return nil
}

// Ended waits for the server's end, for limit at most, and reports whether it has ended.
func (s *Server) Ended(limit time.Duration) bool {
	select {
	case <-s.Exited:
		return true
	case <-time.After(limit):
		return false
	}
}

// Log collects a child's stderr while others look at it.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
	// written has a value if something was written since the last receive.
	written chan struct{}
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{written: make(chan struct{}, 1)} }

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

// contains reports whether text was written; a text that begins with a newline also matches at the
// very beginning.
func (l *Log) contains(text string) bool { return strings.Contains("\n"+l.String(), text) }

// String returns everything written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
