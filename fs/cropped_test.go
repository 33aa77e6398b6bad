package fs

import (
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// mountCrops mounts crops of cubes with these paths.
func mountCrops(t *testing.T, cubes ...string) *mounted {
	t.Helper()
	d := newFakeDataset(2)
	d.cubes = cubes
	return mountFake(t, d)
}

func (m *mounted) list(dir string) []string {
	return m.must(call{Op: "list", Path: m.path(dir)}).Names
}

// Each worker's file has one next to it with the places where its records were cut, in each epoch,
// in the root and below epoch-N, and after a restore.
func TestCropWorkersHaveFileOfOrigins(t *testing.T) {
	m := mountCrops(t, "sat.zarr")
	require.Subset(t, m.list(""), []string{"coords", "worker-0.crops.npy", "worker-1.crops.npy"})
	require.Equal(t, []string{"worker-0-of-2.crops.npy", "worker-0-of-2.ids", "worker-0-of-2.offsets", "worker-0-of-2.rec"}, m.list("epoch-3")[:4])
	root := m.expect(checkpoint.Position{}, 1, 2)[stream.Crops]
	require.Equal(t, string(root), m.read(m.path("worker-1.crops.npy")))
	third := m.expect(checkpoint.Position{Epoch: 3}, 2, 5)[stream.Crops]
	require.Equal(t, string(third), m.read(m.path("epoch-3/worker-2-of-5.crops.npy")))
	before := m.must(call{Op: "stat", Path: m.path("worker-1.crops.npy")})
	require.EqualValues(t, len(root), before.Size)
	inodes := map[uint64]string{}
	for _, name := range m.list("") {
		ino := m.must(call{Op: "stat", Path: m.path(name)}).Ino
		require.Empty(t, inodes[ino], "%s has the inode number of", name)
		inodes[ino] = name
	}
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 4}`))
	after := m.must(call{Op: "stat", Path: m.path("worker-1.crops.npy")})
	require.NotEqual(t, before.Ino, after.Ino)
	require.Equal(t, string(m.expect(checkpoint.Position{Epoch: 4}, 1, 2)[stream.Crops]), m.read(m.path("worker-1.crops.npy")))
	require.Contains(t, m.read(m.path("README")), "worker-0.crops.npy:")
}

// Other mounts have no such files.
func TestOnlyCropsHaveFileOfOrigins(t *testing.T) {
	m := mount(t, 1)
	for _, name := range []string{"worker-0.crops.npy", "epoch-0/worker-0-of-1.crops.npy", "coords", "coords/time.npy"} {
		require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path(name)}).Errno, name)
	}
	require.NotContains(t, m.list(""), "coords")
	require.NotContains(t, m.read(m.path("README")), "crop")
}

// With one cube, coords contains the files themselves. Each is read when it is opened, once for all
// that have it open.
func TestCoordinatesOfOneGrid(t *testing.T) {
	m := mountCrops(t, "sat.zarr")
	require.Equal(t, []string{"time.npy", "x.npy"}, m.list("coords"))
	for _, dim := range []string{"time", "x"} {
		want := string(m.data.coordinate(0, dim))
		path := m.path("coords", dim+".npy")
		require.EqualValues(t, len(want), m.must(call{Op: "stat", Path: path}).Size)
		require.Equal(t, want, m.read(path))
	}
	// Whether the first opening reads the coordinates depends on when the kernel tells the mount that
	// the files above were closed. The second one does not read them.
	before := m.data.readCoordinates()
	path := m.path("coords/time.npy")
	fds := []int{m.open(path, unix.O_RDONLY)}
	first := m.data.readCoordinates()
	require.LessOrEqual(t, first, before+1)
	fds = append(fds, m.open(path, unix.O_RDONLY))
	for _, fd := range fds {
		r := m.must(call{Op: "pread", FD: fd, Off: 7995, N: 100})
		require.Equal(t, "zarr", string(r.Data[1:]), "the last bytes of the file")
	}
	require.Equal(t, first, m.data.readCoordinates())
	for _, fd := range fds {
		m.must(call{Op: "close", FD: fd})
	}
	for _, name := range []string{"coords/y.npy", "coords/time", "coords/sat.zarr", "coords/time.npy/x"} {
		require.NotEqual(t, syscall.Errno(0), m.do(call{Op: "stat", Path: m.path(name)}).Errno, name)
	}
	require.Equal(t, syscall.EROFS, m.do(call{Op: "open", Path: path, Flags: unix.O_WRONLY}).Errno)
	require.Equal(t, syscall.EROFS, m.do(call{Op: "mkdir", Path: m.path("coords/new")}).Errno)
}

// A file that can't be read any more is an error at the opening, and status names it.
func TestMissingCoordinates(t *testing.T) {
	m := mountCrops(t, "sat.zarr")
	m.data.loseCoordinates()
	require.Equal(t, syscall.EIO, m.do(call{Op: "open", Path: m.path("coords/time.npy")}).Errno)
	require.Contains(t, m.read(m.path("status")), "coords/time.npy")
}

// With several cubes, coords has a directory for each, at its path.
func TestCoordinatesOfSeveralGrids(t *testing.T) {
	cubes := []string{"2018/a.zarr", "2018/b.zarr", "2018-old.zarr", "2019.zarr"}
	slices.Sort(cubes) // like those of a dataset
	m := mountCrops(t, cubes...)
	require.Equal(t, []string{"2018", "2018-old.zarr", "2019.zarr"}, m.list("coords"))
	require.Equal(t, []string{"a.zarr", "b.zarr"}, m.list("coords/2018"))
	require.Equal(t, []string{"time.npy", "x.npy"}, m.list("coords/2019.zarr"))
	for i, cube := range cubes {
		require.Equal(t, string(m.data.coordinate(i, "time")), m.read(m.path("coords", cube, "time.npy")))
	}
	for _, name := range []string{"coords/201", "coords/2018/a", "coords/2018/c.zarr", "coords/2019.zarr/2018", "coords/time.npy", "coords/2018/time.npy"} {
		require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path(name)}).Errno, name)
	}
}
