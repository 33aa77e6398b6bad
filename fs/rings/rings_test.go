package rings_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/fs/rings"
	"github.com/lsiofs/lsiofs/fs/rings/ringstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fileBytes = 3<<20 + 77

// pattern is the contents of the test's files.
func pattern(off int64, p []byte) {
	for i := range p {
		x := uint64(off+int64(i)) * 0x9e3779b97f4a7c15
		p[i] = byte(x >> 56)
	}
}

// node is a file whose reads wait until they are released, if its name begins with "slow".
type node struct {
	fusefs.Inode
	served *served
	name   string
}

func (n *node) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Size, out.Mode = fileBytes, unix.S_IFREG|0o644
	return 0
}

func (n *node) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Read(ctx context.Context, _ fusefs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if strings.HasPrefix(n.name, "slow") {
		n.served.waiting.Add(1)
		defer n.served.waiting.Add(-1)
		select {
		case <-n.served.goOn:
		case <-ctx.Done():
			return nil, syscall.EINTR
		}
	}
	dest = dest[:max(min(int64(len(dest)), fileBytes-off), 0)]
	pattern(off, dest)
	return fuse.ReadResultData(dest), 0
}

// Write checks whether the written data is the content of the file.
func (n *node) Write(_ context.Context, _ fusefs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	want := make([]byte, len(data))
	if pattern(off, want); !bytes.Equal(want, data) {
		return 0, syscall.EBADMSG
	}
	return uint32(len(data)), 0
}

type root struct {
	fusefs.Inode
	served *served
}

func (r *root) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	n := &node{served: r.served, name: name}
	_ = n.Getattr(ctx, nil, &fuse.AttrOut{})
	out.Size, out.Mode = fileBytes, unix.S_IFREG|0o644
	return r.NewInode(ctx, n, fusefs.StableAttr{Mode: unix.S_IFREG}), 0
}

func (r *root) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	list := make([]fuse.DirEntry, 2000) // several replies
	for i := range list {
		list[i] = fuse.DirEntry{Name: fmt.Sprintf("file-%04d", i), Mode: unix.S_IFREG}
	}
	return fusefs.NewListDirStream(list), 0
}

// served is a file system that receives its requests through rings.
type served struct {
	dir     string
	server  *rings.Server
	waiting atomic.Int32
	goOn    chan struct{}
	ended   chan struct{}
}

func serve(t *testing.T) *served {
	t.Helper()
	ringstest.Need(t)
	s := &served{dir: t.TempDir(), goOn: make(chan struct{}), ended: make(chan struct{})}
	raw := fusefs.NewNodeFS(&root{served: s}, &fusefs.Options{})
	o := &fuse.MountOptions{
		Name: "rings", MaxWrite: 1 << 20, MaxBackground: 1024, DisableSplice: true, DirectMountStrict: true,
		ExtraCapabilities: fuse.CAP_OVER_IO_URING,
	}
	f, err := fuse.NewServer(raw, s.dir, o)
	require.NoError(t, err)
	require.True(t, rings.Serving(f, o))
	s.server, err = rings.NewServer(f, raw, o, deviceOf(t), slog.Default())
	require.NoError(t, err)
	go func() { s.server.Serve(); close(s.ended) }()
	require.NoError(t, f.WaitMount())
	t.Cleanup(func() {
		// Detached, since a program that looks at all mounts of the machine may be looking at this
		// one.
		_ = unix.Unmount(s.dir, unix.MNT_FORCE|unix.MNT_DETACH) // some tests have already done so
		<-s.ended
	})
	return s
}

// deviceOf returns the only descriptor of /dev/fuse.
func deviceOf(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, name := range names {
		if target, err := os.Readlink(name); err == nil && target == "/dev/fuse" {
			fd, err := strconv.Atoi(filepath.Base(name))
			require.NoError(t, err)
			unix.CloseOnExec(fd)
			return fd
		}
	}
	require.Fail(t, "no descriptor of /dev/fuse")
	return 0
}

func wanted(t *testing.T) string {
	t.Helper()
	all := make([]byte, fileBytes)
	pattern(0, all)
	return fmt.Sprintf("%x", sha256.Sum256(all))
}

// shell runs shell commands in another process, in the mount's directory.
func (s *served) shell(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("bash", "-o", "pipefail", "-ec", "cd "+s.dir+"\n"+script).CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

func TestReadsOfEverySizeReturnBytesOfFile(t *testing.T) {
	s := serve(t)
	for _, size := range []string{"4099", "64K", "128K", "1M", "2M"} {
		require.Contains(t, s.shell(t, "dd if=file status=none bs="+size+" | sha256sum"), wanted(t), size)
	}
	got := strings.Fields(s.shell(t, `for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4; do sha256sum < file-$i; done) & done; wait`))
	for i := 0; i < len(got); i += 2 {
		require.Equal(t, wanted(t), got[i])
	}
	require.Len(t, got, 2*8*4)
}

func TestWritesOfEverySizeArriveUnchanged(t *testing.T) {
	s := serve(t)
	for _, size := range []string{"13K", "128K", "1M"} {
		s.shell(t, "dd if=file of=copy status=none conv=notrunc bs="+size)
	}
}

func TestLongNamesAndListsArriveCompletely(t *testing.T) {
	s := serve(t)
	require.Equal(t, "2000", s.shell(t, "ls -U | grep -c ^file-"))
	require.Contains(t, s.shell(t, "stat -c %s "+strings.Repeat("n", 255)), strconv.Itoa(fileBytes))
}

func TestWaitingReadsDelayNoOthers(t *testing.T) {
	s := serve(t)
	slow := rings.WorkersOf(runtime.NumCPU()) - 2 // all may be on one processor
	done := make(chan string, 1)
	go func() {
		script := fmt.Sprintf("cd %s; for i in $(seq %d); do head -c 1000000 slow-$i | wc -c & done; wait", s.dir, slow)
		out, err := exec.Command("bash", "-c", script).CombinedOutput()
		done <- fmt.Sprint(string(out), err)
	}()
	for int(s.waiting.Load()) < slow {
		require.Contains(t, s.shell(t, "sha256sum < file"), wanted(t))
	}
	require.Contains(t, s.shell(t, "sha256sum < file"), wanted(t))
	require.GreaterOrEqual(t, len(s.server.UnderWay()), slow)
	close(s.goOn)
	require.Equal(t, slow, strings.Count(<-done, "1000000"))
	// The memory of that many replies has been given back, except what is kept.
	require.Eventually(t, func() bool {
		bytes, most := s.server.Kept()
		return bytes <= most
	}, time.Minute, time.Millisecond)
}

func TestWaitingProcessCanBeKilled(t *testing.T) {
	s := serve(t)
	for range 30 {
		cmd := exec.Command("cat", filepath.Join(s.dir, "slow"))
		require.NoError(t, cmd.Start())
		for s.waiting.Load() == 0 {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e5}, nil)
		}
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		for s.waiting.Load() != 0 {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e5}, nil)
		}
	}
}

func TestForcedUnmountEndsWaitingRequests(t *testing.T) {
	s := serve(t)
	var cmds []*exec.Cmd
	for i := range 10 {
		cmd := exec.Command("cat", filepath.Join(s.dir, fmt.Sprintf("slow-%d", i)))
		require.NoError(t, cmd.Start())
		cmds = append(cmds, cmd)
	}
	for s.waiting.Load() < 10 {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
	}
	_ = unix.Unmount(s.dir, unix.MNT_FORCE) // it ends the connection, and may return EBUSY
	for _, cmd := range cmds {
		require.Error(t, cmd.Wait())
	}
	if err := unix.Unmount(s.dir, unix.MNT_DETACH); err != nil {
		require.ErrorIs(t, err, unix.EINVAL, "nobody had it open any more")
	}
	<-s.ended
	require.Empty(t, s.server.UnderWay())
}
