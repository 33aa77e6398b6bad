// Package backing is a FUSE file system that fails on command, for datasets of tests.
//
//	test ──orders, a line of JSON each──► child process ──FUSE──► mount of a directory
//
// It presents a directory. It is served by a child process, which is another run of the test's own
// program: in the test's process, a stalled read would stall the test's own threads too. A test
// program that uses the package calls Main in its TestMain.
//
// The child answers each order with a line. It unmounts and exits when its input ends.
package backing

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// FileSystem is a mounted file system. Its methods may be called concurrently.
type FileSystem struct {
	Dir string // where it is mounted

	t      testing.TB
	mu     sync.Mutex // one order at a time
	orders io.WriteCloser
	words  *bufio.Scanner
	ended  chan struct{}
	cmd    *exec.Cmd

	uncached bool
}

// Options describe the kind of file system. By default the kernel requests attributes whenever they
// are needed, and inode numbers are those of the directory behind it.
type Options struct {
	// Attributes is how long the kernel keeps attributes, as on network file systems.
	Attributes time.Duration
	// ReadOnly mounts it read-only: otherwise the kernel drops a file's attributes after each read,
	// because a read changes the access time.
	ReadOnly bool
	// Uncached makes the file system answer each read itself, never from the page cache, like some
	// file systems whose files are also changed elsewhere (direct_io of libfuse).
	Uncached bool
	// NewInodes gives a file a new inode number each time the kernel has forgotten it (see Forget),
	// like libfuse's high-level interface.
	NewInodes bool
}

// Fault is what happens to the reads that touch a range of a file, or to its openings.
type Fault struct {
	Path     string
	From, To int64 // of a read; To 0 is the end
	Open     bool  // it applies to openings, not to reads
	Do       string
	// Times is how many reads it applies to, 0 for all.
	Times int
}

// The values of Fault.Do.
const (
	EIO   = "EIO"
	EINTR = "EINTR"
	Stall = "stall" // it is only answered when the fault is removed
	// A read gets half of the bytes. Only a file system that is Uncached may do that: otherwise the
	// kernel takes it for the end of the file, or fills the rest with zeros.
	Short = "short"
	Slow  = "slow" // a tenth of a second later
)

// order is one of these: replace the faults; drop a file's pages from the page cache; make the
// kernel forget a file.
type order struct {
	Faults       []Fault
	Drop, Forget string
}

type answer struct {
	Stalled int // the present number of stalled reads and openings
	Error   string
}

// limit ends what hangs. Nothing that works comes near it.
const limit = 90 * time.Second

const variable = "LSIOFS_TEST_BACKING"

// Main serves the file system and exits, if the process was started for that; otherwise it does
// nothing.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	if err := child(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Mount presents the directory behind at a new mount point, until the test ends. environment is
// that of the child.
func Mount(t testing.TB, behind string, o Options, environment []string) *FileSystem {
	t.Helper()
	require.Empty(t, os.Getenv(variable), "this program's TestMain does not call backing.Main")
	b := &FileSystem{t: t, uncached: o.Uncached, Dir: t.TempDir(), ended: make(chan struct{})}
	options, err := json.Marshal(o)
	require.NoError(t, err)
	b.cmd = exec.Command(os.Args[0], behind, b.Dir, string(options))
	b.cmd.Env = append(environment, variable+"=1")
	b.cmd.Stderr = os.Stderr
	b.orders, err = b.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := b.cmd.StdoutPipe()
	require.NoError(t, err)
	b.words = bufio.NewScanner(out)
	require.NoError(t, b.cmd.Start())
	t.Cleanup(b.End)
	require.Equal(t, answer{}, b.hear(), "it is mounted")
	return b
}

// End ends all stalls and unmounts. It may be called before the cleanup does.
func (b *FileSystem) End() {
	select {
	case <-b.ended:
		return
	default:
	}
	defer close(b.ended)
	b.orders.Close()
	killer := time.AfterFunc(limit, func() { b.cmd.Process.Kill() })
	defer killer.Stop()
	if err := b.cmd.Wait(); err != nil {
		b.t.Errorf("the file system of the dataset ended with %v", err)
		_ = unix.Unmount(b.Dir, unix.MNT_DETACH)
	}
}

func (b *FileSystem) hear() (a answer) {
	b.t.Helper()
	require.True(b.t, b.words.Scan(), "the file system of the dataset has ended: %v", b.words.Err())
	require.NoError(b.t, json.Unmarshal(b.words.Bytes(), &a))
	require.Empty(b.t, a.Error)
	return a
}

func (b *FileSystem) order(o order) answer {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NoError(b.t, json.NewEncoder(b.orders).Encode(o))
	return b.hear()
}

// Fail replaces the faults; stalled reads continue if their fault is not among the new ones.
func (b *FileSystem) Fail(faults ...Fault) {
	b.t.Helper()
	for _, f := range faults {
		require.False(b.t, f.Do == Short && !b.uncached, "short answers of a file system whose files are cached")
	}
	b.order(order{Faults: append([]Fault{}, faults...)})
}

// Drop drops a file's pages from the page cache, including mapped ones.
func (b *FileSystem) Drop(path string) {
	b.t.Helper()
	b.order(order{Drop: path})
}

// Forget makes the kernel forget a file's name, as it does when memory is short; the file itself is
// forgotten once it is not open any more.
func (b *FileSystem) Forget(path string) {
	b.t.Helper()
	b.order(order{Forget: path})
}

// Stalled returns how many reads and openings are stalled now.
func (b *FileSystem) Stalled() int {
	b.t.Helper()
	return b.order(order{}).Stalled
}

// WaitStalled waits until at least n reads and openings are stalled.
func (b *FileSystem) WaitStalled(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.Stalled() >= n }, limit, 5*time.Millisecond, "%d reads stall", n)
}
