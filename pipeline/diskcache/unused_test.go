package diskcache

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// seen is a disk that calls a function once, when a file of one name has been examined.
type seen struct {
	kernel
	name string
	hook atomic.Pointer[func()]
}

func (d *seen) statAt(dir int, name string) (unix.Stat_t, error) {
	st, err := d.kernel.statAt(dir, name)
	if name == d.name {
		if hook := d.hook.Swap(nil); hook != nil {
			(*hook)()
		}
	}
	return st, err
}

// When room is made for the share, pages of this mount's own share are not mistaken for those of a
// mount that was killed, even if they are freed while their blocks are counted.
func TestPagesFreedDuringCountDoNotEvictOthers(t *testing.T) {
	w := newWorld(t, objectsOf(2, 6*mib))
	disk := &seen{}
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes, c.disk = 11*mib+128<<10, 5*mib, disk })
	disk.name = filepath.Base(w.path("1", ".data"))
	w.read(s, "0", 0, 6*mib)
	done := func() {
		s.Passed(1, []storage.Block{{Object: w.objects["1"], OffsetBytes: 0, SizeBytes: 4 * mib}})
		settle(s)
	}
	bring := func() {
		require.NotZero(t, w.read(s, "1", 0, 4*mib))
		require.Zero(t, w.read(s, "1", 0, 4*mib), "it is in the share")
	}
	trim := func(hook func()) {
		recount(t, s) // so that the keeper has nothing to count
		disk.hook.Store(&hook)
		s.keeper.trim()
	}
	bring()
	trim(done)
	require.NotNil(t, disk.hook.Swap(nil), "with something in the share nothing is looked at")
	done()

	trim(func() {
		require.NotZero(t, w.read(s, "1", 0, 4*mib))
		done()
	})
	require.Nil(t, disk.hook.Load())
	require.Zero(t, w.read(s, "0", 0, 6*mib), "what is for good has stayed")
}
