package uring

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestBrokenLibraryCallsAreNotUsed keeps out calls that read the wrong file
// (RegisterFiles), use memory after it was freed (timeouts), or delay stop-the-worlds (Submit), and
// the reactor, which never drains.
func TestBrokenLibraryCallsAreNotUsed(t *testing.T) {
	broken := map[string]bool{
		"RegisterFiles": true, "UnRegisterFiles": true, "Timeout": true, "LinkTimeout": true,
		"WaitCQEventsWithTimeout": true, "CreateMany": true, "QueueSQE": true, "WithSQPoll": true,
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	looked := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		positions := token.NewFileSet()
		parsed, err := parser.ParseFile(positions, name, nil, 0)
		require.NoError(t, err)
		for _, i := range parsed.Imports {
			require.NotContains(t, i.Path.Value, "go-uring/reactor", name)
		}
		onRing := name == "ring.go" || name == "ringowner.go" // elsewhere Submit is the engine's
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				looked++
				if broken[s.Sel.Name] || onRing && s.Sel.Name == "Submit" {
					t.Errorf("%s: %s is broken in go-uring", positions.Position(s.Pos()), s.Sel.Name)
				}
			}
			return true
		})
	}
	require.Greater(t, looked, 100)
}

// TestSignalsAndGarbageCollectionDisturbNothing sends signals to all threads, including the
// owner's, and collects garbage all the time.
func TestSignalsAndGarbageCollectionDisturbNothing(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		defer debug.SetGCPercent(debug.SetGCPercent(1))
		fd, content := testFile(t, t.TempDir(), 300_000)
		e := v.open(t)
		stop := make(chan struct{})
		var rain sync.WaitGroup
		rain.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				threads, _ := os.ReadDir("/proc/self/task")
				for _, thread := range threads {
					if id, err := strconv.Atoi(thread.Name()); err == nil {
						_ = unix.Tgkill(unix.Getpid(), id, unix.SIGURG) // which the runtime sends to itself
					}
				}
			}
		})
		for round := range 20 {
			requests := make([]*Request, 60)
			for i := range requests {
				requests[i] = &Request{FD: fd, OffsetBytes: int64(i*1009 + round), Buf: make([]byte, 20_000)}
			}
			for i, got := range readAll(t, e, requests) {
				r := requests[i]
				require.NoError(t, got.err)
				require.True(t, bytes.Equal(wanted(content, r.OffsetBytes, len(r.Buf)), r.Buf[:got.n]))
			}
		}
		close(stop)
		rain.Wait()
	})
}

// TestUserNobodyReadsSameBytes runs itself in a child process without privileges and without
// lockable memory: rings are refused there, or made without it.
func TestUserNobodyReadsSameBytes(t *testing.T) {
	if os.Getenv(nobodyVariable) == "" {
		if os.Getuid() != 0 {
			t.Skip("needs root, to become nobody")
		}
		child := exec.Command(os.Args[0], "-test.v", "-test.run=^TestUserNobodyReadsSameBytes$")
		dir := serve.ShortDir(t) // TMPDIR may be inaccessible to others
		require.NoError(t, os.Chown(dir, nobody, nobody))
		child.Env = append(os.Environ(), nobodyVariable+"=1", "TMPDIR="+dir)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "read as nobody")
		return
	}
	fd, content := testFile(t, t.TempDir(), 2<<20+5)
	for _, mode := range []Mode{ModeAuto, ModePread} {
		e, err := Open(mode)
		require.NoError(t, err)
		if s := e.Status(); mode == ModeAuto && s.Engine == "pread" {
			require.Contains(t, s.Reason, "ulimit -l")
		}
		for _, policy := range []Direct{DirectNever, DirectCold, DirectAlways} {
			f := NewFile(fd, policy)
			buf := make([]byte, len(content))
			require.Equal(t, []result{{n: len(content)}}, readAll(t, e, []*Request{{File: f, Buf: buf}}))
			require.True(t, bytes.Equal(content, buf))
			closeDirect(t, f)
		}
		if s := e.Status(); s.Engine == "uring" && s.DirectReads > 0 {
			require.False(t, s.Registered)
			require.Contains(t, s.NotRegistered, "ulimit -l")
		}
		require.NoError(t, e.Close())
	}
	t.Log("read as nobody")
}

func TestAutoReadsWithPreadIfOutOfDescriptors(t *testing.T) {
	requireUring(t)
	fd, content := testFile(t, t.TempDir(), 200_000)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	lowered := limit
	lowered.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered))
	e, err := Open(ModeAuto)
	var got []result
	f := NewFile(fd, DirectAlways)
	buf := make([]byte, len(content))
	if err == nil {
		got = readAll(t, e, []*Request{{File: f, Buf: buf}})
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, err)
	require.Equal(t, "pread", e.Status().Engine)
	require.Contains(t, e.Status().Reason, "too many open files (is the limit on open files too low, ulimit -n?); reading with pread")
	require.Equal(t, []result{{n: len(content)}}, got)
	require.True(t, bytes.Equal(content, buf))
	require.Nil(t, f.direct.Load(), "there was no descriptor for direct reads")
	require.False(t, f.isRefused(), "there may be one later")
	require.Equal(t, map[string]uint64{"no descriptor was left": 1}, e.Status().NotDirect)
	require.NoError(t, e.Close())
}
