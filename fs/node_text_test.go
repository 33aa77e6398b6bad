package fs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Programs that read by st_size (tar, rsync, mmap, web servers) get all of status, and nothing of a
// text that another opening has. cp treats a file whose inode number has changed as another file.
func TestOpenStatusKeepsItsTextAndSize(t *testing.T) {
	m := mount(t, 1)
	for _, name := range []string{nameStatus, nameStatusJSON, nameMetrics} {
		path := m.path(name)
		number := m.must(call{Op: "stat", Path: path}).Ino
		first := m.open(path, unix.O_RDONLY)
		held := m.must(call{Op: "pread", FD: first, N: 1 << 20}).Data
		require.NotEmpty(t, held)
		require.Zero(t, m.write(`{"epoch": 98765}`))
		second := m.open(path, unix.O_RDONLY)
		require.Contains(t, string(m.must(call{Op: "pread", FD: second, N: 1 << 20}).Data), "98765", "%s is made when it is opened", name)
		for _, fd := range []int{first, second, first} {
			st := m.must(call{Op: "fstat", FD: fd})
			text := m.must(call{Op: "pread", FD: fd, N: 1 << 20}).Data
			require.EqualValues(t, len(text), st.Size, name)
			require.Equal(t, number, st.Ino)
			require.Equal(t, text, m.must(call{Op: "mmap", FD: fd, N: int(st.Size), Flags: unix.MAP_PRIVATE}).Data)
			require.Equal(t, text, m.must(call{Op: "pread", FD: fd, N: 1 << 20}).Data)
		}
		require.Equal(t, held, m.must(call{Op: "pread", FD: first, N: 1 << 20}).Data)
		m.must(call{Op: "close", FD: first})
		m.must(call{Op: "close", FD: second})
		require.Zero(t, m.write(`{"epoch": 0}`))
		require.NotContains(t, m.read(path), "98765")
	}
}

// A request without a thread, such as from another PID namespace, is not known to be by the thread
// that has unlinked the name.
func TestUnlinkedNameIsHiddenLongerOnlyFromKnownThread(t *testing.T) {
	h := &hiddenName{most: 0, mostOwn: time.Hour}
	h.hide(t.Context())
	require.False(t, h.isHidden(t.Context()))
}
