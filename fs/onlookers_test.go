package fs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// mountForAll is a mount that other users may read, and its log.
func mountForAll(t *testing.T, r Readers) (*mounted, *strings.Builder) {
	t.Helper()
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir, d, log := serve.ShortDir(t), newFakeDataset(2), &strings.Builder{}
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir, AllowOther: true, Readers: r, Log: slog.New(slog.NewTextHandler(log, nil))}, d.set)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Unmount(context.Background())) })
	return &mounted{Mount: m, agent: newAgent(t), data: d, dir: dir}, log
}

func TestReadsOfOtherUsersDoNotCount(t *testing.T) {
	m, log := mountForAll(t, Readers{})
	look := func(script string) {
		t.Helper()
		out, err := asNobody(t, script, "sh")
		require.NoError(t, err, out)
	}
	look("head -c 20 " + m.path("worker-0.rec"))
	require.Equal(t, []uint64{0, 0}, m.consumed())
	status := m.read(m.path("status"))
	require.Regexp(t, `worker-0\.rec .* no reader; read by user 65534 \(process \d+\), not counted`, status)
	require.Contains(t, status, "\nreads of user 65534 are not counted: if this user trains, mount with --readers 65534, or ")
	require.Contains(t, m.read(m.path("status.json")), `"uncounted"`)
	require.Contains(t, m.read(m.path("README")), "\nThe checkpoint counts what root read (mount --readers names more users).\n\nThe next epoch")
	look("cat " + m.path("worker-0.rec") + " " + m.path("worker-1.rec"))
	require.Equal(t, []uint64{0, 0}, m.consumed(), "to the end")

	// A program that keeps the file open does not keep the owner's reads from counting.
	holder := exec.Command("sh", "-c", `exec 3< "$0"; head -c 20 <&3; exec cat`, m.path("worker-0.rec"))
	holder.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	holds, err := holder.StdinPipe()
	require.NoError(t, err)
	said, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	_, err = io.ReadFull(said, make([]byte, 20))
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(holds.Close(), holder.Wait())) }()
	m.read(m.path("worker-0.rec"))
	require.Equal(t, []uint64{500, 0}, m.consumed())
	require.Equal(t, 1, strings.Count(log.String(), "the checkpoint does not count this user's reads"), "the log is told once: %s", log)
	require.Equal(t, 0, int(m.write(`{"epoch": 1}`)))
	require.NotContains(t, m.read(m.path("status")), "does not count")
}

func TestReadsOfNamedUsersCount(t *testing.T) {
	for name, r := range map[string]Readers{"by number": {Users: []uint32{7, 65534}}, "all": {All: true}} {
		t.Run(name, func(t *testing.T) {
			m, log := mountForAll(t, r)
			out, err := asNobody(t, "cat "+m.path("worker-0.rec"), "sh")
			require.NoError(t, err, out)
			require.Equal(t, []uint64{500, 0}, m.consumed())
			require.NotContains(t, m.read(m.path("status")), "count")
			require.Empty(t, log.String())
		})
	}
}

// The user that opened the file counts, not the one that reads through the descriptor.
func TestReadsOfDescriptorOpenedByOwnerCount(t *testing.T) {
	m, _ := mountForAll(t, Readers{})
	out, code := run(t, "/", "sh", "-c", `exec setpriv --reuid=65534 --clear-groups dd bs=200 count=1 of=/dev/null status=none < "$0"`, m.path("worker-0.rec"))
	require.Zero(t, code, out)
	require.NotEqual(t, []uint64{0, 0}, m.consumed())
}

func TestReadersDescription(t *testing.T) {
	for want, r := range map[string]*readers{
		"root":                             {},
		"root and user 1000":               {owner: 1000},
		"root, user 7, user 8 and user 10": {owner: 8, Readers: Readers{Users: []uint32{10, 7, 8, 0}}},
		"all users":                        {Readers: Readers{All: true}},
	} {
		require.Equal(t, want, r.words())
	}
}

// Each opening of status, metrics and checkpoint keeps a text.
func TestTextsOpenedByOtherUsersAreBounded(t *testing.T) {
	m, _ := mountForAll(t, Readers{})
	texts := &m.tree.texts
	texts.mu.Lock()
	texts.most = int64(2 * len(m.tree.readme)) // about as long as a status
	texts.mu.Unlock()
	for _, name := range []string{"status", "metrics", "checkpoint"} {
		hold := `i=3; while [ $i -lt 60 ]; do eval "exec $i< \"$0\"" || exit 1; i=$((i+1)); done; echo all`
		out, err := asNobody(t, "exec bash -c '"+hold+"' "+m.path(name), "sh")
		require.Error(t, err, "%s: %s", name, out)
		require.Contains(t, out, "Too many open files in system", name)
		out, code := run(t, "/", "bash", "-c", hold, m.path(name))
		require.Zero(t, code, "the owner: %s", out)
		require.Eventually(t, func() bool { texts.mu.Lock(); defer texts.mu.Unlock(); return texts.taken == 0 }, callTimeout, time.Millisecond, name)
	}
	out, err := asNobody(t, "cat "+m.path("checkpoint"), "sh")
	require.NoError(t, err, out)
}
