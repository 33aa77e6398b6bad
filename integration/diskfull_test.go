package integration

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// smallDisk is a file system of 24 MiB that really is full when it is full: an
// image that is mounted. options are mkfs.ext4's.
func smallDisk(t *testing.T, options ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "an image can be mounted by root only")
	}
	mkfs := need(t, "mkfs.ext4")
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 24<<20))
	output(t, mkfs, append(append([]string{"-q", "-m", "0"}, options...), image)...)
	if r := command(t, nil, nil, "mount", "-o", "loop", image, dir); r.code != 0 {
		missing(t, "an image can't be mounted: %s", r.stderr)
	}
	t.Cleanup(func() { output(t, "umount", dir) })
	return dir
}

// fill takes what a disk has left but for some bytes.
func fill(t *testing.T, disk string, leave int64) (filler string) {
	t.Helper()
	filler = filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	defer f.Close()
	for {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(disk, &st))
		left := int64(st.Bavail)*st.Bsize - leave
		if left <= 0 {
			return filler
		}
		_, err := f.Write(make([]byte, min(left, 1<<20)))
		if errors.Is(err, syscall.ENOSPC) {
			return filler
		}
		require.NoError(t, err)
		require.NoError(t, f.Sync())
	}
}

func TestADiskThatIsTooSmallForTheSpoolIsSaidAtTheMount(t *testing.T) {
	d := makeBig(t)
	disk := smallDisk(t)
	fill(t, disk, 4<<20)
	s := spoolSettings("full")
	flags := append(s.flags(), "--memory", "1MiB", "--spool-dir", disk)

	for _, read := range []string{"spool", "auto"} {
		_, err := tryMount(t, d, t.TempDir(), append(flags, "--read", read)...)
		require.ErrorContains(t, err, "exit code 3")
		require.ErrorContains(t, err, "--read "+read+": ")
		require.ErrorContains(t, err, "the spool needs ")
		require.ErrorContains(t, err, "choose another with --spool-dir")
		require.ErrorContains(t, err, "fewer --lanes")
	}
}

func TestADiskThatIsFullAfterTheMountHarmsNoReservedSpool(t *testing.T) {
	d := makeBig(t)
	disk := smallDisk(t)
	s := spoolSettings("full")
	want := newReference(t, d).data(s, 0)
	m := mountDataset(t, d, s, "--memory", "1MiB", "--read", "spool", "--spool-dir", disk)
	fill(t, disk, 0)
	requireSameBytes(t, want, m.read("worker-0.jsonl"), "its room was reserved")
}

func TestADiskThatIsFullAfterTheMountFailsReadersOfASpoolThatCouldNotBeReserved(t *testing.T) {
	d := makeBig(t)
	disk := smallDisk(t, "-O", "^extent,^64bit,^has_journal") // fallocate is refused there
	s := spoolSettings("reservoir")
	want := newReference(t, d).data(s, 0)
	m := mountDataset(t, d, s, "--memory", "1MiB", "--read", "spool", "--spool-dir", disk)
	filler := fill(t, disk, 4<<20)

	// All of the file, whatever fails of it.
	f, err := os.Open(m.path("worker-0.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	failed, came := 0, 0
	buf := make([]byte, 64<<10)
	for off := 0; off < len(want); off += len(buf) {
		n, err := f.ReadAt(buf, int64(off))
		if errors.Is(err, syscall.EIO) {
			failed++
			continue
		}
		if err != io.EOF {
			require.NoError(t, err)
		}
		requireSameBytes(t, want[off:min(off+len(buf), len(want))], buf[:n], "at %d", off)
		came += n
	}
	require.NotZero(t, failed, "there is room for four shards of twelve")
	require.NotZero(t, came, "of those that were there first")
	for _, says := range []string{string(m.read("status")), m.log.String()} {
		require.Contains(t, says, "write the spool in "+disk)
		require.Contains(t, says, "no space left on device")
	}

	require.NoError(t, os.Remove(filler))
	requireSameBytes(t, want, m.read("worker-0.jsonl"), "once there is room again")
	t.Logf("%d reads failed, %d bytes came", failed, came)
}
