package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
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

// until waits for a message with the assignment, which comes before any of but.
func (m manager) until(key string, but ...string) map[string]string {
	m.t.Helper()
	for {
		said := m.next()
		if said[key] != "" {
			return said
		}
		for _, b := range but {
			require.NotContains(m.t, said, b)
		}
	}
}

func TestAServiceManagerHearsOfReadinessWhenTheMountCanBeReadAndOfItsEnd(t *testing.T) {
	needMount(t)
	data := dataset(t)
	want := ok(t, "cat", data, "--worker", "1/2").stdout
	for name, abstract := range map[string]bool{"a socket with a path": false, "a socket without a path": true} {
		for _, way := range []string{"SIGTERM", "SIGTERM while a file is open", "umount"} {
			t.Run(name+", "+way, func(t *testing.T) {
				m, address := listen(t, abstract)
				mnt := t.TempDir()
				t.Cleanup(func() { endDaemon(t, mnt) })
				c := program(t, "mount", data, mnt, "--workers", "2")
				c.Env = append(c.Env, "NOTIFY_SOCKET="+address)
				require.NoError(t, c.Start())
				ready := m.until("READY", "STOPPING")
				require.Equal(t, "1", ready["READY"])
				require.True(t, want == read(t, mnt, "worker-1.tar"), "it is read at once")
				require.Contains(t, ready["STATUS"], "mounted "+data+" on "+mnt+": 1,000 records")

				switch way {
				case "umount":
					require.Equal(t, exit.OK, umountInOwnProcess(t, mnt).code)
				case "SIGTERM":
					require.NoError(t, c.Process.Signal(syscall.SIGTERM))
				default:
					f, err := os.Open(filepath.Join(mnt, "worker-0.tar"))
					require.NoError(t, err)
					require.NoError(t, c.Process.Signal(syscall.SIGTERM))
					require.Contains(t, m.until("STOPPING", "READY")["STATUS"], "readers may finish", "it is told before they have")
					require.NoError(t, f.Close())
				}
				ended := m.until("STOPPING", "READY")
				for ended["STATUS"] != "unmounted" {
					ended = m.until("STOPPING", "READY")
				}
				require.NoError(t, c.Wait())
				mounts, err := fs.Mounts()
				require.NoError(t, err)
				_, still := fs.TopMount(mounts, mnt)
				require.False(t, still)
			})
		}
	}
}

func TestAServiceManagerHearsWhatAMountWaitsFor(t *testing.T) {
	needMount(t)
	m, address := listen(t, false)
	mnt := t.TempDir()
	t.Cleanup(func() { endDaemon(t, mnt) })
	c := program(t, "mount", dataset(t), mnt)
	c.Env = append(c.Env, "NOTIFY_SOCKET="+address)
	require.NoError(t, c.Start())
	m.until("READY")
	said := m.next()
	require.Len(t, said, 1)
	require.Regexp(t, "reader|read", said["STATUS"])
	require.Equal(t, exit.OK, umountInOwnProcess(t, mnt).code)
	require.NoError(t, c.Wait())
}

func TestAServiceManagerHearsWhyNot(t *testing.T) {
	needMount(t)
	m, address := listen(t, false)
	c := program(t, "mount", t.TempDir(), t.TempDir(), "--index-dir", t.TempDir())
	c.Env = append(c.Env, "NOTIFY_SOCKET="+address)
	require.Error(t, c.Run())
	require.Contains(t, m.until("STOPPING", "READY")["STATUS"], "holds no files")
}

func TestNoServiceManagerHearsOfADetachedMount(t *testing.T) {
	m, address := listen(t, false)
	t.Setenv("NOTIFY_SOCKET", address)
	mnt, _ := daemon(t, dataset(t))
	endDaemon(t, mnt)
	m.requireSilent() // and the process has ended
}
