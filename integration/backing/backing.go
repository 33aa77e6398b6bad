// Package backing is a file system that fails on command. Tests put datasets on it.
//
//	test ──orders, a line of JSON each──► child process ──FUSE──► mount of a directory
//
// It shows a directory. A child process serves it, and is another run of the test's own
// program: in the test's process, a stalled read would stall the test's own threads too.
// A test program that uses it calls Main in its TestMain.
//
// The child answers each order with a line. It unmounts and ends when its input ends.
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

// FileSystem is one that is mounted. Its methods may be called concurrently.
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

// Options say what kind of file system it is. The zero value asks for attributes
// anew whenever they are wanted, and has the inode numbers of the directory behind
// it.
type Options struct {
	// Attributes is for how long the kernel keeps attributes, as it does on network
	// file systems.
	Attributes time.Duration
	// ReadOnly mounts it read-only: otherwise the kernel drops a file's attributes
	// after each read of it, since that changes its time of access.
	ReadOnly bool
	// Uncached has each read answered by it, never from pages that the kernel keeps, as some file
	// systems do that others change too (direct_io of libfuse).
	Uncached bool
	// NewInodes gives a file a new inode number each time that the kernel has
	// forgotten it (see Forget), as libfuse's high-level interface does.
	NewInodes bool
}

// Fault is what becomes of the reads that touch a range of a file, or of its
// openings.
type Fault struct {
	Path     string
	From, To int64 // of a read; To 0 is the end
	Open     bool  // it is about openings, not about reads
	Do       string
	// Times is how many reads it happens to, 0 for all.
	Times int
}

// What a Fault can do.
const (
	EIO   = "EIO"
	EINTR = "EINTR"
	Stall = "stall" // it is answered when the order is taken back, and by nothing else
	// A read gets half of the bytes. Only one that is Uncached may do that: of any other the kernel
	// takes it for the file's end, or for zeros from there on.
	Short = "short"
	Slow  = "slow" // a tenth of a second later
)

// order is one of these: new faults in place of the old ones; to take a file's pages
// from the page cache; to have the kernel forget a file.
type order struct {
	Faults       []Fault
	Drop, Forget string
}

type answer struct {
	Stalled int // reads and openings, now
	Error   string
}

// limit ends what hangs. Nothing that works comes near it.
const limit = 90 * time.Second

const variable = "LSIOFS_TEST_BACKING"

// Main serves the file system and ends the process, where it was started for that;
// else it does nothing.
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

// Mount shows the directory behind at a new place, until the test ends. environment
// is that of the child.
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

// End lets all reads go and unmounts. It may be called before the cleanup does.
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

// Fail makes these the faults; what has stalled goes on if its fault is not among
// them.
func (b *FileSystem) Fail(faults ...Fault) {
	b.t.Helper()
	for _, f := range faults {
		require.False(b.t, f.Do == Short && !b.uncached, "short answers of a file system whose files are cached")
	}
	b.order(order{Faults: append([]Fault{}, faults...)})
}

// Drop takes a file's pages from the page cache, also from those who have them mapped.
func (b *FileSystem) Drop(path string) {
	b.t.Helper()
	b.order(order{Drop: path})
}

// Forget has the kernel forget a file's name, as it does when memory is short; the
// file itself is forgotten when nobody has it open.
func (b *FileSystem) Forget(path string) {
	b.t.Helper()
	b.order(order{Forget: path})
}

// Stalled is how many reads and openings stall now.
func (b *FileSystem) Stalled() int {
	b.t.Helper()
	return b.order(order{}).Stalled
}

// WaitStalled waits until at least n reads and openings stall.
func (b *FileSystem) WaitStalled(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.Stalled() >= n }, limit, 5*time.Millisecond, "%d reads stall", n)
}
