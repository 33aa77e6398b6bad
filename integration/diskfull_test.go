package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// smallDisk returns a file system of 24 MiB that can really fill up: a mounted image. options are
// those of mkfs.ext4.
func smallDisk(t *testing.T, options ...string) string {
	t.Helper()
	return imageDisk(t, filepath.Join(t.TempDir(), "image"), 24<<20, options...)
}

// thinDisk returns a file system that promises more space than it has, as thin volumes and images
// on a full host do. Data written to it is lost at writeback.
func thinDisk(t *testing.T, there, promised int64) string {
	t.Helper()
	host := t.TempDir()
	if r := command(t, nil, nil, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", there), "tmpfs", host); r.code != 0 {
		missing(t, "a tmpfs can't be mounted: %s", r.stderr)
	}
	t.Cleanup(func() { whileBusy(t, "umount", host) })
	return imageDisk(t, filepath.Join(host, "image"), promised, "-O", "^has_journal")
}

// imageDisk makes an image of a file system and mounts it until the test ends.
func imageDisk(t *testing.T, image string, size int64, options ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "an image can be mounted by root only")
	}
	mkfs, dir := need(t, "mkfs.ext4"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, size))
	output(t, mkfs, append(append([]string{"-q", "-m", "0"}, options...), image)...)
	if r := command(t, nil, nil, "mount", "-o", "loop", image, dir); r.code != 0 {
		missing(t, "an image can't be mounted: %s", r.stderr)
	}
	t.Cleanup(func() { whileBusy(t, "umount", dir) })
	return dir
}

// whileBusy runs a program that changes a mount, and repeats it while it reports that the mount is
// busy: the kernel releases the files of a process, and a loop device, some time after the process
// has ended and the device was unmounted.
func whileBusy(t *testing.T, program string, args ...string) {
	t.Helper()
	for limit := time.Now().Add(clientLimit); ; time.Sleep(10 * time.Millisecond) {
		r := command(t, nil, nil, program, args...)
		if r.code == 0 {
			return
		}
		require.Contains(t, r.stderr, "busy", "%s %q", program, args)
		require.True(t, time.Now().Before(limit), "%s %q: %s", program, args, r.stderr)
	}
}

// fill fills a disk except for leave bytes.
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
	serve.Tier(t, serve.CI)
	d := makeBig(t)
	disk := smallDisk(t, "-O", "^extent,^64bit,^has_journal") // fallocate is not supported there
	s := spoolSettings("reservoir")
	want := newReference(t, d).data(s, 0)
	m := mountDataset(t, d, s, "--memory", "1MiB", "--read", "spool", "--spool-dir", disk)
	filler := fill(t, disk, 4<<20)

	// Read the whole file, whatever parts of it fail.
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
	for _, words := range []string{"write the spool in " + disk, "no space left on device"} {
		require.Contains(t, string(m.read("status")), words)
		m.requireLog(regexp.QuoteMeta(words))
	}

	// There is room again. Shards that failed are still reported, each once: their decoders may
	// have begun before, and ended after, anything that the test does here.
	require.NoError(t, os.Remove(filler))
	for told := 0; ; told++ {
		got, err := os.ReadFile(f.Name())
		requireSameBytes(t, want[:min(len(got), len(want))], got, "what came")
		if err == nil {
			require.Len(t, got, len(want))
			break
		}
		require.ErrorIs(t, err, syscall.EIO)
		require.Less(t, told, bigShards, "more failures than shards")
	}
	t.Logf("%d reads failed, %d bytes came", failed, came)
}

func TestAFullDiskUnderTheIndexDirectoryCostsNothingButTheIndex(t *testing.T) {
	d := plain(t, "tar", 9)
	s := usual()
	want := newReference(t, d).data(s, 1)
	for _, leave := range []int64{0, 4 << 10, 32 << 10} {
		t.Run(fmt.Sprint(leave, " bytes left"), func(t *testing.T) {
			disk := smallDisk(t)
			dir := filepath.Join(disk, "index")
			require.NoError(t, os.Mkdir(dir, 0o700))
			filler := fill(t, disk, leave)
			m := mountDataset(t, d, s, "--index-dir", dir)
			requireFile(t, want, m.path("worker-1.tar"))
			if leave == 0 {
				m.requireLog("no space left on device") // it warns that nothing is stored
			}
			m.end()
			for _, file := range indexFiles(t, dir) {
				require.NotEqual(t, ".tmp", filepath.Ext(file))
			}

			require.NoError(t, os.Remove(filler))
			m = mountDataset(t, d, s, "--index-dir", dir)
			requireFile(t, want, m.path("worker-1.tar"))
			m.end()
			require.Equal(t, 9, index(t, d, "--index-dir", dir).Reused, "once there is room again")
		})
	}
}

// The listing of a dataset of files is mapped from the index directory. If a disk accepts it and
// loses it later, zeros would appear in its place. (It has some MB because a loop device reports
// all failed writes except the first.)
func TestAListingThatItsDiskHasNoRoomForIsKeptInMemory(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := dataset{name: "files", dir: t.TempDir(), flags: []string{"--format", "files"}, ext: ".tar"}
	for i := range 10_000 {
		writeFile(t, d.dir, fmt.Sprintf("%02d/%0240d", i%20, i), fmt.Append(nil, i))
	}
	s := usual()
	want := newReference(t, d).data(s, 1)
	mapped := func(m *mount) string {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", m.cmd.Process.Pid))
		require.NoError(t, err)
		return string(maps)
	}
	roomy := mountDataset(t, d, s, "--index-dir", smallDisk(t))
	requireFile(t, want, roomy.path("worker-1.tar"))
	require.NotContains(t, mapped(roomy), "memfd:lsiofs-listing")

	m := mountDataset(t, d, s, "--index-dir", thinDisk(t, 512<<10, 64<<20))
	requireFile(t, want, m.path("worker-1.tar"))
	require.Contains(t, mapped(m), "memfd:lsiofs-listing")
}

func TestAFullDiskUnderASavedCheckpointLeavesTheLastOne(t *testing.T) {
	d := plain(t, "jsonl", 4)
	m := mountDataset(t, d, usual())
	disk := smallDisk(t)
	file := filepath.Join(disk, "ckpt.json")
	toolOK(t, "checkpoint", "save", m.dir, file)
	before, err := os.ReadFile(file)
	require.NoError(t, err)

	filler := fill(t, disk, 0)
	m.take(d, 0, 5)
	r := tool(t, "checkpoint", "save", m.dir, file)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, file)
	require.Contains(t, r.stderr, "no space left on device")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Subset(t, []string{"ckpt.json", "filler", "lost+found"}, names(t, disk), "nothing is left beside it")

	require.NoError(t, os.Remove(filler))
	toolOK(t, "checkpoint", "save", m.dir, file)
	after, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 5, last(documentOf(t, after).Done).Consumed[0])
}

func TestAnIndexDirectoryThatIsReadOnlyIsUsedAsFarAsItGoes(t *testing.T) {
	d := plain(t, "jsonl", 5)
	s := usual()
	disk := smallDisk(t)
	full, empty := filepath.Join(disk, "full"), filepath.Join(disk, "empty")
	require.NoError(t, os.Mkdir(empty, 0o700))
	index(t, d, "--index-dir", full)
	whileBusy(t, "mount", "-o", "remount,ro", disk)

	require.Equal(t, 5, index(t, d, "--index-dir", full).Reused)
	want := newReference(t, d).data(s, 2)
	for _, dir := range []string{full, empty, filepath.Join(disk, "nothing")} {
		m := mountDataset(t, d, s, "--index-dir", dir)
		requireFile(t, want, m.path("worker-2.jsonl"))
		m.end()
	}

	appendTo(t, filepath.Join(d.dir, "part-0/shard-0002.jsonl"), "{\"new\": 1}\n")
	m := mountDataset(t, d, s, "--index-dir", full)
	requireFile(t, newReference(t, d).data(s, 2), m.path("worker-2.jsonl"))
	m.requireLog("read-only file system") // it warns that nothing is stored

	// The error for a missing spool names the flag for its directory.
	_, err := tryMount(t, makeBig(t), t.TempDir(), append(spoolSettings("full").flags(), "--memory", "1MiB", "--read", "spool", "--index-dir", empty)...)
	require.ErrorContains(t, err, "exit code 3")
	require.ErrorContains(t, err, "--spool-dir")
}
