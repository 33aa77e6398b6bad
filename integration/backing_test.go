package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
)

// backing is a file system for datasets to lie on, that fails as it is told. It
// shows a directory, and is served by a child process, this test's program: what
// it stalls would otherwise stall the test's own threads.
//
// The child answers each order, a line of JSON, with a line; it unmounts and
// ends when it gets no more.
type backing struct {
	t      testing.TB
	dir    string // where it is mounted
	orders io.WriteCloser
	words  *bufio.Scanner
	ended  chan struct{}
	cmd    *exec.Cmd
}

// fault is what becomes of the reads that touch a range of a file.
type fault struct {
	Path     string `json:"path"`
	From, To int64
	Do       string // one of the below
	// Times is how many reads it happens to, 0 for all.
	Times int
}

const (
	doEIO   = "EIO"
	doEINTR = "EINTR"
	doStall = "stall" // the read is answered when the order is taken back, and by nothing else
	doShort = "short" // half of the bytes
	doSlow  = "slow"  // a tenth of a second later
)

// backingOrder is either: new faults in place of the old ones, or to take a file's
// pages from the page cache.
type backingOrder struct {
	Faults []fault
	Drop   string
}

type backingAnswer struct {
	Stalled int // reads, now
	Error   string
}

const backingVariable = "LSIOFS_TEST_BACKING"

// backingDataset is d on a backing file system.
func backingDataset(t testing.TB, d dataset) (dataset, *backing) {
	t.Helper()
	needFUSE(t)
	b := &backing{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	b.cmd = exec.Command(os.Args[0], d.dir, b.dir)
	b.cmd.Env = append(environment(filepath.Join(scratch, "tmp")), backingVariable+"=1")
	b.cmd.Stderr = os.Stderr
	var err error
	b.orders, err = b.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := b.cmd.StdoutPipe()
	require.NoError(t, err)
	b.words = bufio.NewScanner(out)
	require.NoError(t, b.cmd.Start())
	t.Cleanup(b.end)
	require.Equal(t, backingAnswer{}, b.hear(), "it is mounted")
	d.dir = b.dir
	return d, b
}

// end lets all reads go and unmounts. It may be called before the cleanup does.
func (b *backing) end() {
	select {
	case <-b.ended:
		return
	default:
	}
	defer close(b.ended)
	b.orders.Close()
	killer := time.AfterFunc(clientLimit, func() { b.cmd.Process.Kill() })
	defer killer.Stop()
	if err := b.cmd.Wait(); err != nil {
		b.t.Errorf("the file system of the dataset ended with %v", err)
		detach(b.dir)
	}
}

func (b *backing) hear() (a backingAnswer) {
	b.t.Helper()
	require.True(b.t, b.words.Scan(), "the file system of the dataset has ended: %v", b.words.Err())
	require.NoError(b.t, json.Unmarshal(b.words.Bytes(), &a))
	require.Empty(b.t, a.Error)
	return a
}

func (b *backing) order(o backingOrder) backingAnswer {
	b.t.Helper()
	require.NoError(b.t, json.NewEncoder(b.orders).Encode(o))
	return b.hear()
}

// fail makes these the faults; reads that have stalled go on if theirs is not
// among them.
func (b *backing) fail(faults ...fault) {
	b.t.Helper()
	b.order(backingOrder{Faults: append([]fault{}, faults...)})
}

// drop takes a file's pages from the page cache, also from those who have them mapped.
func (b *backing) drop(path string) {
	b.t.Helper()
	b.order(backingOrder{Drop: path})
}

// waitStalled waits until at least n reads stall.
func (b *backing) waitStalled(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.order(backingOrder{}).Stalled >= n }, clientLimit, 5*time.Millisecond, "%d reads stall", n)
}

// serveBacking is the child's main.
func serveBacking(behind, point string) error {
	s := &backingServer{changed: make(chan struct{})}
	var st syscall.Stat_t
	if err := syscall.Stat(behind, &st); err != nil {
		return err
	}
	root := &fusefs.LoopbackRoot{Path: behind, Dev: uint64(st.Dev)}
	s.root = &backingNode{LoopbackNode: fusefs.LoopbackNode{RootData: root}, server: s}
	root.RootNode = s.root
	second := time.Second
	server, err := fusefs.Mount(point, s.root, &fusefs.Options{
		MountOptions: fuse.MountOptions{FsName: "backing", Name: "backing", MaxWrite: 1 << 20, MaxBackground: 1 << 10, DisableXAttrs: true, DirectMount: os.Geteuid() == 0, Logger: log.New(io.Discard, "", 0)},
		EntryTimeout: &second, AttrTimeout: new(time.Duration),
	})
	if err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	_ = answers.Encode(backingAnswer{})
	orders := json.NewDecoder(os.Stdin)
	for {
		var o backingOrder
		if err := orders.Decode(&o); err != nil {
			break // the test wants no more
		}
		_ = answers.Encode(s.obey(o))
	}
	s.setFaults(nil)
	if err := server.Unmount(); err != nil {
		detach(point) // somebody has a file open, and may go on with it
	}
	server.Wait()
	return nil
}

type backingServer struct {
	root *backingNode

	mu      sync.Mutex
	faults  []fault
	changed chan struct{} // closed at the next change of faults
	stalled int
}

func (s *backingServer) obey(o backingOrder) (a backingAnswer) {
	if o.Faults != nil {
		s.setFaults(o.Faults)
	}
	if o.Drop != "" {
		n := s.root.GetChild(o.Drop)
		if n == nil {
			a.Error = o.Drop + " was never looked up"
		} else if errno := n.NotifyContent(0, 0); errno != 0 {
			a.Error = errno.Error()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Stalled = s.stalled
	return a
}

func (s *backingServer) setFaults(faults []fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
	close(s.changed)
	s.changed = make(chan struct{})
}

// about gives the fault for a read, and takes one from its Times.
func (s *backingServer) about(path string, off, end int64) (do string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults {
		f := &s.faults[i]
		if f.Path != path || end <= f.From || off >= f.To || f.Times < 0 {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				f.Times = -1
			}
		}
		return f.Do, s.changed
	}
	return "", s.changed
}

func (s *backingServer) stall(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled += n
}

type backingNode struct {
	fusefs.LoopbackNode
	server *backingServer
}

// WrapChild makes all nodes such ones.
func (n *backingNode) WrapChild(context.Context, fusefs.InodeEmbedder) fusefs.InodeEmbedder {
	return &backingNode{LoopbackNode: fusefs.LoopbackNode{RootData: n.RootData}, server: n.server}
}

// Open keeps the pages that there are, as a file system does whose files don't
// change; else each opening would wait for a page that stalls.
func (n *backingNode) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	path := n.Path(n.Root())
	f, err := os.Open(filepath.Join(n.RootData.Path, path))
	if err != nil {
		return nil, 0, fusefs.ToErrno(err)
	}
	return &backingFile{f, path, n.server}, fuse.FOPEN_KEEP_CACHE, 0
}

type backingFile struct {
	file   *os.File
	path   string
	server *backingServer
}

func (f *backingFile) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	for {
		do, changed := f.server.about(f.path, off, off+int64(len(dest)))
		switch do {
		case doEIO:
			return nil, syscall.EIO
		case doEINTR:
			return nil, syscall.EINTR
		case doStall:
			f.server.stall(1)
			<-changed
			f.server.stall(-1)
			continue
		case doSlow:
			time.Sleep(100 * time.Millisecond)
		case doShort:
			dest = dest[:(len(dest)+1)/2]
		}
		n, err := f.file.ReadAt(dest, off)
		if err != nil && err != io.EOF {
			return nil, fusefs.ToErrno(err)
		}
		return fuse.ReadResultData(dest[:n]), 0
	}
}

func (f *backingFile) Release(context.Context) syscall.Errno {
	return fusefs.ToErrno(f.file.Close())
}

func backingMain() int {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "the arguments are a directory and a mount point")
		return 2
	}
	if err := serveBacking(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
