package backing

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// child is the main function of the child process: its arguments are a directory, a mount point and
// Options.
func child(args []string) error {
	if len(args) != 3 {
		return errors.New("the arguments are a directory, a mount point and options")
	}
	behind, point := args[0], args[1]
	s := &server{changed: make(chan struct{})}
	if err := json.Unmarshal([]byte(args[2]), &s.options); err != nil {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(behind, &st); err != nil {
		return err
	}
	root := &fusefs.LoopbackRoot{Path: behind, Dev: uint64(st.Dev)}
	s.root = &node{LoopbackNode: fusefs.LoopbackNode{RootData: root}, server: s}
	root.RootNode = s.root
	second := time.Second
	options := fuse.MountOptions{FsName: "backing", Name: "backing", MaxWrite: 1 << 20, MaxBackground: 1 << 10, DisableXAttrs: true, DirectMount: os.Geteuid() == 0, Logger: log.New(io.Discard, "", 0)}
	if s.options.ReadOnly {
		options.Options = []string{"ro"}
		options.DirectMountFlags = unix.MS_RDONLY
	}
	mounted, err := fusefs.Mount(point, s.root, &fusefs.Options{MountOptions: options, EntryTimeout: &second, AttrTimeout: &s.options.Attributes})
	if err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	_ = answers.Encode(answer{})
	orders := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			break // the test has ended
		}
		_ = answers.Encode(s.obey(o))
	}
	s.setFaults(nil)
	if err := mounted.Unmount(); err != nil {
		_ = unix.Unmount(point, unix.MNT_DETACH) // a program may have a file open, and may go on using it
	}
	mounted.Wait()
	return nil
}

type server struct {
	options Options
	root    *node

	mu      sync.Mutex
	faults  []Fault
	changed chan struct{} // closed at the next change of faults
	stalled int
}

func (s *server) obey(o order) (a answer) {
	if o.Faults != nil {
		s.setFaults(o.Faults)
	}
	if o.Drop != "" {
		if n := s.find(o.Drop); n == nil {
			a.Error = o.Drop + " was never looked up"
		} else if errno := n.NotifyContent(0, 0); errno != 0 {
			a.Error = errno.Error()
		}
	}
	if o.Forget != "" {
		if n := s.find(filepath.Dir(o.Forget)); n == nil {
			a.Error = o.Forget + " was never looked up"
		} else if errno := n.NotifyEntry(filepath.Base(o.Forget)); errno != 0 && errno != syscall.ENOENT {
			a.Error = errno.Error()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Stalled = s.stalled
	return a
}

// find returns the inode of a path that the kernel knows, or nil.
func (s *server) find(path string) *fusefs.Inode {
	n := s.root.EmbeddedInode()
	if path == "." {
		return n
	}
	for name := range strings.SplitSeq(path, "/") {
		if n = n.GetChild(name); n == nil {
			return nil
		}
	}
	return n
}

func (s *server) setFaults(faults []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
	close(s.changed)
	s.changed = make(chan struct{})
}

// about returns the fault for a read of [off, end), or for an opening, and counts one of its Times
// off.
func (s *server) about(path string, open bool, off, end int64) (do string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults {
		f := &s.faults[i]
		to := f.To
		if to == 0 {
			to = math.MaxInt64
		}
		if f.Path != path || f.Open != open || end <= f.From || off >= to || f.Times < 0 {
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

// suffer applies a fault to a read of [off, end), or to an opening. short means that only half of
// the bytes may be returned.
func (s *server) suffer(path string, open bool, off, end int64) (short bool, errno syscall.Errno) {
	for {
		do, changed := s.about(path, open, off, end)
		switch do {
		case EIO:
			return false, syscall.EIO
		case EINTR:
			return false, syscall.EINTR
		case Stall:
			s.stall(1)
			<-changed
			s.stall(-1)
			continue
		case Slow:
			time.Sleep(100 * time.Millisecond)
		case Short:
			return true, 0
		}
		return false, 0
	}
}

func (s *server) stall(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled += n
}

type node struct {
	fusefs.LoopbackNode
	server *server
}

func (s *server) newNode(root *fusefs.LoopbackRoot) *node {
	return &node{LoopbackNode: fusefs.LoopbackNode{RootData: root}, server: s}
}

// WrapChild makes all nodes of this type.
func (n *node) WrapChild(context.Context, fusefs.InodeEmbedder) fusefs.InodeEmbedder {
	return n.server.newNode(n.RootData)
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if !n.server.options.NewInodes {
		return n.LoopbackNode.Lookup(ctx, name, out)
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(n.RootData.Path, n.Path(n.Root()), name), &st); err != nil {
		return nil, fusefs.ToErrno(err)
	}
	out.Attr.FromStat(&st)
	child := n.GetChild(name)
	if child == nil || child.StableAttr().Mode != st.Mode&syscall.S_IFMT {
		// go-fuse numbers it, and never reuses a number.
		child = n.NewInode(ctx, n.server.newNode(n.RootData), fusefs.StableAttr{Mode: st.Mode & syscall.S_IFMT})
	}
	return child, 0
}

// Open keeps the pages in the page cache, like a file system whose files don't change; otherwise
// each opening would wait for a page that stalls.
func (n *node) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	path := n.Path(n.Root())
	if _, errno := n.server.suffer(path, true, 0, 1); errno != 0 {
		return nil, 0, errno
	}
	// It may be a pipe by now, which must not block.
	f, err := os.OpenFile(filepath.Join(n.RootData.Path, path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fusefs.ToErrno(err)
	}
	if n.server.options.Uncached {
		return &file{f, path, n.server}, fuse.FOPEN_DIRECT_IO, 0
	}
	return &file{f, path, n.server}, fuse.FOPEN_KEEP_CACHE, 0
}

type file struct {
	file   *os.File
	path   string
	server *server
}

func (f *file) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	short, errno := f.server.suffer(f.path, false, off, off+int64(len(dest)))
	if errno != 0 {
		return nil, errno
	}
	if short {
		dest = dest[:(len(dest)+1)/2]
	}
	n, err := f.file.ReadAt(dest, off)
	if err != nil && err != io.EOF {
		return nil, fusefs.ToErrno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

func (f *file) Release(context.Context) syscall.Errno {
	return fusefs.ToErrno(f.file.Close())
}
