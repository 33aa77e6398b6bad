package mounting

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// manager listens as a service manager does.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// listen gives a manager and its address: a path, or a name that begins with @.
func listen(t *testing.T, abstract bool) (m manager, address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // such paths have to be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	address = filepath.Join(dir, "socket")
	if abstract {
		address = "@" + address
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return manager{t, conn}, address
}

// next waits for a message and gives its assignments.
func (m manager) next() map[string]string {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	require.NoError(m.t, err, "no word of the mount")
	said := map[string]string{}
	for line := range strings.SplitSeq(string(buf[:n]), "\n") {
		key, value, found := strings.Cut(line, "=")
		require.True(m.t, found, "%q", buf[:n])
		require.NotContains(m.t, said, key)
		said[key] = value
	}
	return said
}

// requireSilent shows that nothing has been said: what was sent has arrived.
func (m manager) requireSilent() {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	require.ErrorIs(m.t, err, os.ErrDeadlineExceeded, "%q", buf[:n])
}

func TestAServiceManagerWaitsForAnIndexPassThatMoves(t *testing.T) {
	m, address := listen(t, false)
	t.Setenv("NOTIFY_SOCKET", address)
	var inner recorded
	r := withService(&inner)
	pass := func(at time.Duration, bytes int64) catalog.Progress {
		return catalog.Progress{Shards: 1, ShardsTotal: 4, Bytes: bytes, BytesTotal: 400 << 20, Records: 10, Elapsed: at}
	}
	r.Progress(catalog.Progress{Elapsed: 5 * time.Second})
	m.requireSilent() // nothing has begun
	r.Progress(pass(6*time.Second, 100<<20))
	said := m.next()
	require.Equal(t, "120000000", said["EXTEND_TIMEOUT_USEC"])
	require.Contains(t, said["STATUS"], "indexing: 1 of 4 shards, 100 MiB of 400 MiB (25 %)")
	r.Progress(pass(6*time.Second+100*time.Millisecond, 200<<20))
	m.requireSilent() // once a second is enough
	r.Progress(pass(8*time.Second, 200<<20))
	require.Contains(t, m.next()["STATUS"], "50 %")
	r.Progress(pass(80*time.Second, 200<<20))
	m.requireSilent() // it stands still
	r.Progress(catalog.Progress{Records: 40, Elapsed: 81 * time.Second, Done: true})
	require.Equal(t, "indexed: 40 records; mounting", m.next()["STATUS"])
	r.Ended(errors.New("one line\nand another\n"))
	require.Equal(t, map[string]string{"STOPPING": "1", "STATUS": "one line; and another; "}, m.next())
	require.Equal(t, append(strings.Split(strings.Repeat("progress ", 6), " ")[:6], "ended"), inner.what, "others are told, too")
}

func TestAServiceManagerIsToldNamesAsTheyCanBeShown(t *testing.T) {
	m, address := listen(t, false)
	r := &serviceReporter{socket: address}
	r.notify("STATUS=a reader waits for the disk: shard a\x1b[2J\u202e.tar\nREADY=1")
	require.Equal(t, map[string]string{"STATUS": `a reader waits for the disk: shard a\x1b[2J\u202e.tar; READY=1`}, m.next())
}
