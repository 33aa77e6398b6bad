package uring

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	gouring "github.com/godzie44/go-uring/uring"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLibraryVersionMatchesAssumptions guards the assumptions about unexported parts of
// go-uring.
func TestLibraryVersionMatchesAssumptions(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "github.com/godzie44/go-uring v0.0.0-20250501163612-d16a9e597639\n",
		"another version of go-uring: look at ring.go again")
	require.EqualValues(t, 64, unsafe.Sizeof(gouring.SQEntry{}))
	require.EqualValues(t, 16, unsafe.Sizeof(gouring.CQEvent{}))

	requireUring(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, err := newRing(ringEntries, setupClamp)
	require.NoError(t, err)
	params := reflect.ValueOf(r.Params).Elem()
	require.EqualValues(t, 120, params.Type().Size(), "the kernel's struct io_uring_params")
	require.EqualValues(t, setupClamp, params.FieldByName("flags").Uint(), "flags are set in the right place")
	require.EqualValues(t, ringEntries, params.FieldByName("sqEntries").Uint())

	entries := r.submissionEntries()
	require.Len(t, entries, ringEntries*64)
	entry, err := r.NextSQE()
	require.NoError(t, err)
	require.Same(t, &entries[0], (*byte)(unsafe.Pointer(entry)), "entries are handed out from there")
	require.NoError(t, r.close())
}

func TestRingUsesPreferredFlagsIfKernelSupportsThem(t *testing.T) {
	requireUring(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, err := openRing(8)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.close()) }()
	_, err = newRing(8, 1<<31)
	require.ErrorIs(t, err, unix.EINVAL, "a flag that the kernel does not know is seen, so those above were")
	t.Logf("flags %#x", r.flags)
	require.EqualValues(t, r.flags, reflect.ValueOf(r.Params).Elem().FieldByName("flags").Uint())
}

// TestSlowReadDelaysNoOthers reads a pipe without data: the ring waits for it, and continues
// with what comes meanwhile.
func TestSlowReadDelaysNoOthers(t *testing.T) {
	requireUring(t)
	e, err := Open(ModeUring)
	require.NoError(t, err)
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	slow := make(chan result, 1)
	slowBuf := make([]byte, 8)
	e.Submit([]*Request{{FD: pipe[0], Buf: slowBuf, Done: func(n int, err error) { slow <- result{n, err} }}})

	fd, content := testFile(t, t.TempDir(), 5000)
	for i := range 50 {
		r := &Request{FD: fd, OffsetBytes: int64(i), Buf: make([]byte, 100)}
		require.Equal(t, []result{{n: 100}}, readAll(t, e, []*Request{r}))
		require.True(t, bytes.Equal(content[i:i+100], r.Buf))
	}
	require.EqualValues(t, 1, e.Status().InFlight)
	require.Empty(t, slow)

	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	for _, piece := range []string{"sh", "ort", "er!"} { // short reads are continued
		_, err := unix.Write(pipe[1], []byte(piece))
		require.NoError(t, err)
	}
	require.Equal(t, result{n: 8}, <-slow)
	require.Equal(t, "shorter!", string(slowBuf))
	require.NoError(t, <-closed)
	require.NoError(t, unix.Close(pipe[0]))
	require.NoError(t, unix.Close(pipe[1]))
}

func TestAutoUsesRingIfItWorks(t *testing.T) {
	requireUring(t)
	e, err := Open(ModeAuto)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.Equal(t, Status{Engine: "uring", Reason: "a test read through a ring worked"}, e.Status())
}

// TestAutoFallsBackToPreadInSandbox runs itself in child processes where io_uring is refused as
// Docker does (EPERM) and podman (ENOSYS), and in one where rings can be made but not used.
func TestAutoFallsBackToPreadInSandbox(t *testing.T) {
	cases := []struct {
		name  string
		call  int
		errno unix.Errno
		why   string
	}{
		{"as Docker", unix.SYS_IO_URING_SETUP, unix.EPERM, "io_uring_setup: operation not permitted ("},
		{"as podman", unix.SYS_IO_URING_SETUP, unix.ENOSYS, "io_uring_setup: function not implemented (blocked by the container's seccomp profile?)"},
		{"enter refused", unix.SYS_IO_URING_ENTER, unix.EACCES, "io_uring_enter: permission denied ("},
	}
	if value := os.Getenv(sandboxVariable); value != "" {
		for _, c := range cases {
			if value == fmt.Sprint(c.call, int(c.errno)) {
				testInsideASandbox(t, c.errno, c.why)
			}
		}
		return
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.call == unix.SYS_IO_URING_ENTER {
				requireUring(t)
			}
			child := exec.Command(os.Args[0], "-test.v", "-test.run=^TestAutoFallsBackToPreadInSandbox$")
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", sandboxVariable, c.call, int(c.errno)))
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "read in a sandbox")
			require.Contains(t, string(out), "--- PASS: TestAutoFallsBackToPreadInSandbox")
		})
	}
}

func testInsideASandbox(t *testing.T, refused unix.Errno, why string) {
	fd, content := testFile(t, t.TempDir(), 100_000)
	descriptors := entries(t, "/proc/self/fd")
	_, err := Open(ModeUring)
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "io engine uring: "+why)
	require.ErrorContains(t, err, "; use auto or pread")

	e := openEngineAs(t, ModeAuto, "pread")
	require.Contains(t, e.Status().Reason, why)
	require.Contains(t, e.Status().Reason, "; reading with pread")
	buf := make([]byte, len(content))
	require.Equal(t, []result{{n: len(content)}}, readAll(t, e, []*Request{{FD: fd, Buf: buf}}))
	require.True(t, bytes.Equal(content, buf))

	require.Equal(t, descriptors, entries(t, "/proc/self/fd"))
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	require.NotContains(t, string(maps), "[io_uring]")
	t.Log("read in a sandbox")
}
