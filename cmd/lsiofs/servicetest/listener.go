// Package servicetest is a service manager for tests: it receives what a program reports by the
// protocol of sd_notify(3).
package servicetest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Manager receives notifications like a service manager.
type Manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// Listen returns a manager and its address: a path or, if abstract, a name that begins with @.
func Listen(t *testing.T, abstract bool) (m Manager, address string) {
	t.Helper()
	address = filepath.Join(serve.ShortDir(t), "socket")
	if abstract {
		address = "@" + address
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return Manager{t, conn}, address
}

// limit bounds waits. Nothing that works comes near it.
const limit = 5 * time.Minute

// Next waits for a message and returns its assignments.
func (m Manager) Next() map[string]string {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(limit)))
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

// RequireSilent checks that no message has been sent. A message that was sent has arrived already.
func (m Manager) RequireSilent() {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	require.ErrorIs(m.t, err, os.ErrDeadlineExceeded, "%q", buf[:n])
}

// Until waits for a message that assigns key, and fails if one that assigns any of but comes first.
func (m Manager) Until(key string, but ...string) map[string]string {
	m.t.Helper()
	for {
		said := m.Next()
		if said[key] != "" {
			return said
		}
		for _, b := range but {
			require.NotContains(m.t, said, b)
		}
	}
}
