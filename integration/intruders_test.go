package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestWhatIsNoFileInADatasetIsPassedOverAndLinksAreFollowed adds things that only look like shards.
// None is opened or waited for, and no link is followed back.
func TestWhatIsNoFileInADatasetIsPassedOverAndLinksAreFollowed(t *testing.T) {
	for _, format := range []string{"auto", "files"} {
		t.Run(format, func(t *testing.T) {
			above, outside := t.TempDir(), t.TempDir()
			dir := filepath.Join(above, "data")
			for name, text := range map[string]string{
				filepath.Join(dir, "a.jsonl"): "{\"a\":1}\n", filepath.Join(outside, "in/out.jsonl"): "{\"b\":2}\n",
				filepath.Join(outside, "linked.jsonl"): "{\"c\":3}\n", filepath.Join(above, "beside/d.jsonl"): "{\"d\":4}\n",
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
				require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			}
			in := func(name string) string { return filepath.Join(dir, name) }
			require.NoError(t, errors.Join(
				os.Symlink(filepath.Join(outside, "linked.jsonl"), in("link.jsonl")),
				os.Symlink("..", in("parent")), os.Symlink(".", in("self.jsonl")), os.Symlink(filepath.Join(outside, "in"), in("away")),
				os.Symlink("/dev/zero", in("device.jsonl")),
				syscall.Mkfifo(in("pipe.jsonl"), 0o600), syscall.Mkfifo(in("pipe.tar"), 0o600),
				syscall.Mknod(in("socket.jsonl"), syscall.S_IFSOCK|0o600, 0),
				os.Mkdir(in("directory.tar"), 0o700),
			))
			if os.Getuid() == 0 {
				if err := syscall.Mknod(in("zero.jsonl"), syscall.S_IFCHR|0o600, 1<<8|5); !errors.Is(err, syscall.EPERM) { // EPERM as in a container
					require.NoError(t, err)
				}
			}
			r := bounded(t, "cat", dir, "--shuffle", "none", "--format", format)
			require.Zero(t, r.code, r.stderr)
			a, away, linked, beside := "{\"a\":1}\n", "{\"b\":2}\n", "{\"c\":3}\n", "{\"d\":4}\n"
			if format == "auto" {
				require.Equal(t, a+away+linked+beside, string(r.stdout))
			}
			for _, line := range []string{a, away, linked, beside} {
				require.Equal(t, 1, strings.Count(string(r.stdout), line), "what there is, and what links lead to, which this user may read")
			}

			require.NoError(t, os.Symlink("away", in("latest")))
			r = bounded(t, "cat", dir, "--format", format)
			require.Equal(t, exitDataset, r.code)
			require.Contains(t, r.stderr, map[string]string{"auto": "holds one file under two names: away", "files": "away and latest are one directory"}[format])
			require.NoError(t, os.Remove(in("latest")))

			require.NoError(t, os.Symlink("loop.jsonl", in("loop.jsonl")))
			r = bounded(t, "cat", dir, "--format", format)
			require.Equal(t, exitDataset, r.code)
			require.Contains(t, r.stderr, "loop.jsonl", "a link that leads nowhere is named")
			require.Contains(t, r.stderr, "mend or remove the link, or leave it out with --exclude")
		})
	}
}

// hugeDocuments returns files that may be taken for a checkpoint.
func hugeDocuments(t *testing.T, good []byte) map[string]string {
	t.Helper()
	dir := t.TempDir()
	paths := map[string]string{}
	write := func(name string, text []byte, size int64) {
		paths[name] = filepath.Join(dir, fmt.Sprint(len(paths)))
		require.NoError(t, os.WriteFile(paths[name], text, 0o600))
		if size > 0 { // sparse
			require.NoError(t, os.Truncate(paths[name], size))
		}
	}
	deep := strings.Repeat("[", 100_000)
	write("1 GiB of zeros", nil, 1<<30)
	write("a good one and 1 GiB behind it", good, 1<<30)
	write("16 MiB of spaces", []byte(strings.Repeat(" ", 16<<20)), 0)
	write("lists 10^5 deep", []byte(deep), 0)
	write("objects 10^5 deep", []byte(strings.Repeat(`{"epoch":`, 100_000)), 0)
	write("lists 10^5 deep as an epoch", []byte(`{"epoch": `+deep), 0)
	write("lists 10^5 deep in a good one", []byte(strings.Replace(string(good), `"consumed": [`, `"consumed": [`+deep, 1)), 0)
	write("a number of 10 MB", []byte(`{"epoch": `+strings.Repeat("1", 10_000_000)+"}"), 0)
	write("a name of 10 MB", []byte(`{"`+strings.Repeat("e", 10_000_000)+`": 1}`), 0)
	write("a million fields", []byte("{"+strings.Repeat(`"epoch": 1, `, 1_000_000)+`"epoch": 1}`), 0)
	return paths
}

// Such documents are refused by the commands, by --resume, and by the mount.
func TestDocumentsOfAGigabyteOrOfAnyDepthAreRefusedEverywhere(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := plain(t, "jsonl", 2)
	m := mountDataset(t, d, usual(), "--memory", fmt.Sprint(hostileMemory))
	good := m.read("checkpoint")
	before := string(good)
	for name, path := range hugeDocuments(t, good) {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{
				{"checkpoint", "show", path}, {"checkpoint", "merge", path, path}, {"checkpoint", "restore", path, m.dir},
				{"mount", d.dir, t.TempDir(), "--resume", path}, {"cat", d.dir, "--resume", path},
			} {
				r := bounded(t, args...)
				require.Equal(t, exitCheckpoint, r.code, "%q: %s", args, r.stderr)
				require.Empty(t, r.stdout)
				require.Less(t, len(r.stderr), 4096, "a message, not the document")
			}
			f, err := os.Open(path)
			require.NoError(t, err)
			defer f.Close()
			w, err := os.OpenFile(m.path("checkpoint"), os.O_WRONLY|os.O_TRUNC, 0)
			require.NoError(t, err)
			_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, make([]byte, 1<<20))
			if err = errors.Join(err, w.Close()); name != "16 MiB of spaces" { // which might still become a document
				require.Error(t, err)
			}
			require.Equal(t, before, string(m.read("checkpoint")))
		})
	}
	m.requireAlive()
	if held, err := serve.MemoryOf(m.cmd.Process.Pid); !raceBuilt {
		require.NoError(t, err)
		require.Less(t, held, hostileMemory+promisedSlack)
	}
}

// requireShowable fails if a terminal would act on the printed text.
func requireShowable(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			t.Fatalf("%s has %q at %d of %q", what, r, i, text[max(0, i-80):min(len(text), i+20)])
		}
	}
}

// The names of shards and members, and the error of a shard that is gone, are escaped.
func TestNothingOfADatasetReachesATerminalAsItIs(t *testing.T) {
	needFUSE(t)
	const evil = "\x1b]0;owned\a\x1b[2J\u009b31m\x9b1m\u202egnp\x7f\n"
	dir := t.TempDir()
	d := dataset{dir: dir, ext: ".jsonl"}
	shard := func(n int, ext string) string { return filepath.Join(dir, fmt.Sprintf("%d%s%s", n, evil, ext)) }
	for i := range 3 {
		require.NoError(t, os.WriteFile(shard(i, ".jsonl"), []byte(strings.Repeat("{\"n\": 1}\n", 2000)), 0o600))
	}
	require.NoError(t, os.WriteFile(shard(3, ".jsonl.gz"), gzipOf([]byte("{}\n"), 9)[:20], 0o600))
	look := func(args ...string) result {
		r := bounded(t, args...)
		requireShowable(t, fmt.Sprintf("stderr of %q", args), r.stderr)
		requireShowable(t, fmt.Sprintf("stdout of %q", args), string(r.stdout))
		return r
	}
	for _, verb := range []string{"index", "inspect", "verify", "plan"} {
		for _, more := range [][]string{nil, {"--json"}} {
			r := look(append([]string{verb, dir}, more...)...)
			if verb != "verify" {
				require.Contains(t, r.stderr, `owned`, "the damaged shard is named")
			}
			r = look(append([]string{verb, dir, "--on-corrupt", "skip"}, more...)...)
			if verb == "inspect" || verb == "verify" {
				require.Contains(t, string(r.stdout), `owned`)
			}
		}
	}
	m := mountDataset(t, d, usual(), "--on-corrupt", "skip", "--memory", "1MiB")
	for i := range 3 {
		require.NoError(t, os.Truncate(shard(i, ".jsonl"), 10))
	}
	_, err := os.ReadFile(m.path("epoch-7/worker-0-of-1.jsonl"))
	require.ErrorIs(t, err, syscall.EIO)
	for _, name := range []string{"status", "status.json", "dataset.json", "metrics", "README"} {
		requireShowable(t, name, string(m.read("%s", name)))
	}
	require.Contains(t, string(m.read("status")), `\x1b]0;owned\x07`)
	var s struct {
		Errors []struct{ Text string } `json:"last_errors"`
	}
	require.NoError(t, json.Unmarshal(m.read("status.json"), &s))
	require.NotEmpty(t, s.Errors)
	require.Contains(t, s.Errors[0].Text, "\x1b]0;owned\a", "a program gets the very name")
	m.requireLog(`owned`)
	requireShowable(t, "the log", m.log.String())

	// A shard's extension becomes part of names in the mount.
	only := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(only, "a.\x1b[31m"), []byte("12345678"), 0o600))
	_, err = tryMount(t, dataset{dir: only, flags: []string{"--format", "fixed", "--record-bytes", "4"}}, t.TempDir())
	require.ErrorContains(t, err, "rename the shards")
	requireShowable(t, "the refusal", err.Error())
}

// The server has no socket that others could reach.
func TestAMountListensToNobody(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	m.requireAlive()
	m.read("worker-0.jsonl")
	pid := m.cmd.Process.Pid
	const inodeOfInternet, inodeOfPacket = 9, 8 // the column of each table that has the socket's inode
	for table, column := range map[string]int{
		"tcp": inodeOfInternet, "tcp6": inodeOfInternet, "udp": inodeOfInternet, "udp6": inodeOfInternet,
		"udplite": inodeOfInternet, "udplite6": inodeOfInternet, "raw": inodeOfInternet, "raw6": inodeOfInternet, "packet": inodeOfPacket,
	} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if errors.Is(err, os.ErrNotExist) {
			continue // this kernel does not have it
		}
		require.NoError(t, err)
		sockets := socketsOf(t, pid)
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			require.Greater(t, len(fields), column, "%s: %s", table, line)
			require.NotContains(t, sockets, fields[column], "a socket of %s", table)
		}
	}
	// The remaining sockets are Unix sockets that are connected to nothing but a parent.
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
	require.NoError(t, err)
	for _, inode := range socketsOf(t, pid) {
		for line := range strings.Lines(string(b)) {
			if fields := strings.Fields(line); len(fields) > 6 && fields[6] == inode {
				require.Len(t, fields, 7, "a socket with a name: %s", line)
			}
		}
	}
}

// socketsOf returns the inodes of a process's sockets.
func socketsOf(t *testing.T, pid int) (inodes []string) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		target, _ := os.Readlink(name) // "" if it has been closed meanwhile
		if m := regexp.MustCompile(`^socket:\[(\d+)\]$`).FindStringSubmatch(target); m != nil {
			inodes = append(inodes, m[1])
		}
	}
	return inodes
}
