package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/servicetest"
	"github.com/lsiofs/lsiofs/fs"
)

func TestMountNotifiesServiceManagerWhenReadableAndWhenEnding(t *testing.T) {
	needMount(t)
	data := dataset(t)
	want := ok(t, "cat", data, "--worker", "1/2").stdout
	for name, abstract := range map[string]bool{"a socket with a path": false, "a socket without a path": true} {
		for _, way := range []string{"SIGTERM", "SIGTERM while a file is open", "umount"} {
			t.Run(name+", "+way, func(t *testing.T) {
				m, address := servicetest.Listen(t, abstract)
				mnt := t.TempDir()
				t.Cleanup(func() { endDaemon(t, mnt) })
				c := program(t, "mount", data, mnt, "--workers", "2")
				c.Env = append(c.Env, "NOTIFY_SOCKET="+address)
				require.NoError(t, c.Start())
				ready := m.Until("READY", "STOPPING")
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
					require.Contains(t, m.Until("STOPPING", "READY")["STATUS"], "waiting up to", "it is told before they have")
					require.NoError(t, f.Close())
				}
				ended := m.Until("STOPPING", "READY")
				for ended["STATUS"] != "unmounted" {
					ended = m.Until("STOPPING", "READY")
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

func TestMountReportsWhatItWaitsForToServiceManager(t *testing.T) {
	needMount(t)
	m, address := servicetest.Listen(t, false)
	mnt := t.TempDir()
	t.Cleanup(func() { endDaemon(t, mnt) })
	c := program(t, "mount", dataset(t), mnt)
	c.Env = append(c.Env, "NOTIFY_SOCKET="+address)
	require.NoError(t, c.Start())
	m.Until("READY")
	said := m.Next()
	require.Len(t, said, 1)
	require.Regexp(t, "reader|read", said["STATUS"])
	require.Equal(t, exit.OK, umountInOwnProcess(t, mnt).code)
	require.NoError(t, c.Wait())
}

func TestMountReportsFailureToServiceManager(t *testing.T) {
	needMount(t)
	m, address := servicetest.Listen(t, false)
	c := program(t, "mount", t.TempDir(), t.TempDir(), "--index-dir", t.TempDir())
	c.Env = append(c.Env, "NOTIFY_SOCKET="+address)
	require.Error(t, c.Run())
	require.Contains(t, m.Until("STOPPING", "READY")["STATUS"], "holds no files")
}

func TestDetachedMountDoesNotNotifyServiceManager(t *testing.T) {
	m, address := servicetest.Listen(t, false)
	t.Setenv("NOTIFY_SOCKET", address)
	mnt, _ := daemon(t, dataset(t))
	endDaemon(t, mnt)
	m.RequireSilent() // and the process has ended
}
