package integration

import (
	"archive/tar"
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// client reads a whole file in its own way and returns the bytes.
type client struct {
	name string
	read func(t *testing.T, path, scratch string) []byte
}

// byShell returns a client that is a line of sh: $1 is the file, $2 a path to write.
func byShell(program, line string) client {
	return client{line, func(t *testing.T, path, scratch string) []byte {
		need(t, program)
		return shell(t, line, path, scratch)
	}}
}

// byCopy is byShell for programs that write a copy to $2.
func byCopy(program, line string) client {
	return client{line, func(t *testing.T, path, scratch string) []byte {
		need(t, program)
		shell(t, line, path, scratch)
		b, err := os.ReadFile(scratch)
		require.NoError(t, err)
		return b
	}}
}

// byPython returns a client whose program finds the file in sys.argv[1] and a path to write in
// sys.argv[2]. It writes the bytes to out.
func byPython(name, program string, modules ...string) client {
	return client{"python " + name, func(t *testing.T, path, scratch string) []byte {
		head := "import sys, os\nout = sys.stdout.buffer\npath, copy = sys.argv[1:]\n"
		return script(t, python(t, modules...), head+program, path, scratch)
	}}
}

func byNode(name, program string) client {
	return client{"node " + name, func(t *testing.T, path, scratch string) []byte {
		need(t, "node")
		return output(t, "node", "-e", "const fs = require('fs'); const [path, copy] = process.argv.slice(1);"+program, path, scratch)
	}}
}

var clients = []client{
	byShell("cat", `cat "$1"`),
	byShell("cat", `cat < "$1" | cat`),
	byCopy("cp", `cp "$1" "$2"`),
	byCopy("cp", `cp -p --sparse=always "$1" "$2"`),
	byCopy("install", `install -m 600 "$1" "$2"`),
	byShell("dd", `dd if="$1" bs=997 status=none`),
	byShell("dd", `dd if="$1" bs=1048577 status=none`),
	byShell("dd", `dd if="$1" bs=4096 count=3 status=none; dd if="$1" bs=4096 skip=3 status=none`),
	byShell("head", `head -c 12345 "$1"; tail -c +12346 "$1"`),
	byShell("tail", `n=$(stat -c %s "$1"); head -c $((n - 777)) "$1"; tail -c 777 "$1"`),
	byShell("head", `head -c -10 "$1"; tail -c 10 "$1"`),
	byShell("pigz", `pigz -c < "$1" | pigz -dc`),
	byShell("zstd", `zstd -qc "$1" | zstd -qdc`),
	byShell("lz4", `lz4 -qc "$1" | lz4 -qdc`),
	byCopy("rsync", `rsync -a "$1" "$2"`),
	byCopy("rsync", `rsync --inplace --checksum "$1" "$2"`),
	byCopy("curl", `curl -s -o "$2" "file://$1"`),
	byShell("busybox", `busybox cat "$1"`),
	byCopy("busybox", `busybox cp "$1" "$2"`),
	byShell("busybox", `busybox dd if="$1" bs=1000 2> /dev/null`),
	byPython("open", "out.write(open(path, 'rb').read())"),
	byPython("unbuffered reads of odd sizes", `
f = open(path, 'rb', buffering=0)
n = 1
while data := f.read(n):
    out.write(data)
    n = n * 3 % 100003
`),
	byPython("seeks", `
f = open(path, 'rb')
size = f.seek(0, 2)
parts = {}
for at in reversed(range(0, size, 7919)):
    f.seek(at)
    parts[at] = f.read(7919)
out.write(b''.join(parts[at] for at in sorted(parts)))
`),
	byPython("mmap", `
import mmap
f = open(path, 'rb')
out.write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
`, "mmap"),
	byPython("sendfile", `
f = open(path, 'rb')
size, at = os.fstat(f.fileno()).st_size, 0
out.flush()
while at < size:
    at += os.sendfile(1, f.fileno(), at, size - at)
`),
	byPython("shutil.copyfile", "import shutil\nshutil.copyfile(path, copy)\nout.write(open(copy, 'rb').read())"),
	byPython("numpy.memmap", "import numpy\nout.write(numpy.memmap(path, dtype='u1', mode='r').tobytes())", "numpy"),
	byPython("numpy.fromfile", "import numpy\nout.write(numpy.fromfile(path, dtype='u1').tobytes())", "numpy"),
	byNode("readFileSync", "process.stdout.write(fs.readFileSync(path))"),
	byNode("createReadStream", "fs.createReadStream(path).pipe(process.stdout)"),
	byNode("copyFileSync", "fs.copyFileSync(path, copy); process.stdout.write(fs.readFileSync(copy))"),
}

func TestEveryClientGetsTheSameBytes(t *testing.T) {
	d := plain(t, "tar", 27)
	s := usual()
	m := mountDataset(t, d, s)
	want := newReference(t, d).data(s, 1)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			got := c.read(t, m.path("worker-1.tar"), filepath.Join(t.TempDir(), "copy"))
			requireSameBytes(t, want, got, "%s", c.name)
		})
	}
	t.Run("md5sum", func(t *testing.T) {
		for _, program := range []string{"md5sum", "busybox"} {
			need(t, program)
		}
		sum := fmt.Sprintf("%x", md5.Sum(want))
		require.Equal(t, sum, string(shell(t, `md5sum < "$1"`, m.path("worker-1.tar"))[:32]))
		require.Equal(t, sum, string(shell(t, `busybox md5sum < "$1"`, m.path("worker-1.tar"))[:32]))
	})
	t.Run("wc and stat", func(t *testing.T) {
		require.Equal(t, fmt.Sprintf("%d\n%d\n", len(want), len(want)),
			string(shell(t, `wc -c < "$1"; stat -c %s "$1"`, m.path("worker-1.tar"))))
	})
}

// members reads an archive with Go's own reader. It returns the names of its members and the data
// of its regular files.
func members(t *testing.T, archive []byte) (list []string, data []byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list, data
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		list = append(list, h.Name)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		data = append(data, b...)
	}
}

func TestTarProgramsExtractStream(t *testing.T) {
	s := usual()
	m := mountDataset(t, plain(t, "tar", 18), s)
	path := m.path("worker-0.tar")
	list, data := members(t, m.read("worker-0.tar"))
	require.Greater(t, len(list), 100)
	require.Contains(t, strings.Join(list, "\n"), "dup-", "the dataset is made so that the equal-key rule has to act")
	listing := strings.Join(list, "\n") + "\n"

	for _, line := range []struct{ program, list, data string }{
		{"tar", `tar --quoting-style=literal -tf "$1"`, `tar -xOf "$1"`},
		{"tar", `tar --quoting-style=literal -b 2048 -t < "$1"`, `tar -b 2048 -xO < "$1"`},
		{"bsdtar", `LC_ALL=C.UTF-8 bsdtar -tf "$1"`, `LC_ALL=C.UTF-8 bsdtar -xOf "$1"`},
		{"busybox", "", `busybox tar -xOf "$1"`},
	} {
		t.Run(line.data, func(t *testing.T) {
			need(t, line.program)
			requireSameBytes(t, data, shell(t, line.data, path), "data")
			if line.list != "" {
				require.Equal(t, listing, string(shell(t, line.list, path)))
			}
		})
	}
	t.Run("python tarfile", func(t *testing.T) {
		for _, mode := range []string{"r:", "r|"} {
			got := script(t, python(t), `
import sys, tarfile
names, data = [], b""
for m in tarfile.open(sys.argv[1], sys.argv[2]):
    names.append(m.name + ("/" if m.isdir() else ""))
t = tarfile.open(sys.argv[1], sys.argv[2])
for m in t:
    if m.isreg():
        data += t.extractfile(m).read()
sys.stdout.buffer.write("\n".join(names).encode() + b"\n" + data)
`, path, mode)
			requireSameBytes(t, append([]byte(listing), data...), got, "mode %s", mode)
		}
	})
	t.Run("node tar-stream", func(t *testing.T) {
		node, modules := nodeWith(t, "tar-stream")
		r := command(t, []string{"NODE_PATH=" + modules}, nil, node, "-e", `
const tar = require('tar-stream'), fs = require('fs'), crypto = require('crypto');
const x = tar.extract(), names = [], hash = crypto.createHash('sha256');
x.on('entry', (h, s, next) => {
  names.push(h.name);
  s.on('data', d => { if (h.type === 'file') hash.update(d); });
  s.on('end', next);
});
x.on('finish', () => process.stdout.write(names.join('\n') + '\n' + hash.digest('hex')));
fs.createReadStream(process.argv[1]).pipe(x);
`, path)
		require.Zero(t, r.code, r.stderr)
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		want := strings.ReplaceAll(listing, "/\n", "\n")
		got := strings.ReplaceAll(string(r.stdout), "/\n", "\n")
		require.Equal(t, want+sum, got)
	})
}

func TestPythonReadsTFRecordsWithStruct(t *testing.T) {
	d := plain(t, "tfrecord", 6)
	s := usual()
	m := mountDataset(t, d, s)
	offsets := splitOffsets(m.read("worker-2.offsets"))
	var want bytes.Buffer
	for i := range len(offsets) - 1 {
		fmt.Fprintln(&want, offsets[i+1]-offsets[i]-16)
	}
	got := script(t, python(t), `
import struct, sys
with open(sys.argv[1], "rb") as f:
    while head := f.read(12):
        (n,) = struct.unpack("<Q", head[:8])
        assert len(f.read(n + 4)) == n + 4
        print(n)
`, m.path("worker-2.tfrecord"))
	require.Equal(t, want.String(), string(got))
}

func TestNumPyMapsFixedRecordsAsArray(t *testing.T) {
	d := plain(t, "fixed", 6)
	m := mountDataset(t, d, usual())
	want := m.read("worker-0.bin")
	got := script(t, python(t, "numpy"), `
import numpy, sys
a = numpy.memmap(sys.argv[1], dtype="u1", mode="r").reshape(-1, 96)
sys.stdout.buffer.write(b"".join(a[i].tobytes() for i in reversed(range(len(a)))))
`, m.path("worker-0.bin"))
	for i := 0; i < len(want); i += 96 {
		require.Equal(t, want[i:i+96], got[len(got)-i-96:len(got)-i])
	}
}

func TestTorchDataLoaderWithWorkersGetsEveryRecordOnce(t *testing.T) {
	d := plain(t, "jsonl", 8)
	s := usual()
	s.Workers, s.Batch = 2, 4
	interpreter := python(t, "torch")
	m := mountDataset(t, d, s)
	got := script(t, interpreter, `
import sys
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Stream(IterableDataset):
    def __iter__(self):
        yield from open("%s/epoch-0/worker-%d-of-2.jsonl" % (sys.argv[1], get_worker_info().id), "rb")

for batch in DataLoader(Stream(), batch_size=4, num_workers=2, collate_fn=list):
    for line in batch:
        sys.stdout.buffer.write(line)
`, m.dir)
	// If the batch size is the mount's --batch, the result is G itself.
	s.Workers, s.Batch = 1, 1
	requireSameBytes(t, newReference(t, d).data(s, 0), got, "DataLoader")
}
