package fs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
)

// epoch returns the mount's epoch. It waits, because some programs unlink what they could not
// write, and the document is then gone for a while.
func (m *mounted) epoch() uint64 {
	m.t.Helper()
	return m.tree.view.Load().position.Epoch
}

// Programs that save and restore. $M is the mount, $D a directory elsewhere with a document of
// epoch 5 (good.json), one that is refused (bad.json), one that is cut off (cut.json), and some
// files that are not documents.
func TestProgramsThatRestore(t *testing.T) {
	m := mount(t, 2)
	// Not below the mounts' directory: mv must see another file system.
	dir := t.TempDir()
	put := func(name, doc string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(doc), 0o644))
	}
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 5}`))
	good := m.read(m.path("checkpoint"))
	reset := func() {
		put("good.json", good)
		put("bad.json", strings.Replace(good, `"epoch": 5`, `"epoch": -5`, 1))
		put("cut.json", good[:len(good)/2])
		put("empty.json", "")
		put("blank.json", " \n\n")
		put("zeros.json", "\x00\x00\x00")
		put("mark.json", "\ufeff")
		require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 0}`))
	}
	const python, node = "/usr/bin/python3", "node"
	for _, c := range []struct {
		name    string
		program string
		script  string // with FILE for one of the documents
		// silent: the program ignores the result of close.
		silent bool
		// adds: the program keeps the existing content.
		adds bool
	}{
		{"cp", "sh", `cp FILE "$M"/checkpoint`, false, false},
		{"cp -p", "sh", `cp -p FILE "$M"/checkpoint`, false, false},
		{"cp --remove-destination", "sh", `cp --remove-destination FILE "$M"/checkpoint`, false, false},
		{"cat", "sh", `cat FILE > "$M"/checkpoint`, false, false},
		{"cat >>", "sh", `cat FILE >> "$M"/checkpoint`, false, true},
		{"tee", "sh", `tee "$M"/checkpoint < FILE`, false, false},
		{"echo in sh", "sh", `echo "$(cat FILE)" > "$M"/checkpoint`, true, false},
		{"echo in bash", "bash", `echo "$(cat FILE)" > "$M"/checkpoint`, true, false},
		{"printf in pieces", "bash", `{ head -c 20 FILE; tail -c +21 FILE; } > "$M"/checkpoint`, false, false},
		{"dd in small blocks", "sh", `dd if=FILE of="$M"/checkpoint bs=7 status=none`, false, false},
		{"dd conv=notrunc,fsync", "sh", `dd if=FILE of="$M"/checkpoint conv=notrunc,fsync status=none`, false, true},
		{"mv from another file system", "sh", `mv FILE "$M"/checkpoint`, false, false},
		{"cp and mv", "sh", `cp FILE "$M"/new && mv "$M"/new "$M"/checkpoint`, false, false},
		{"install", "sh", `install -m 644 FILE "$M"/checkpoint`, false, false},
		{"rsync", "rsync", `rsync -It FILE "$M"/checkpoint`, false, false},
		{"rsync --inplace", "rsync", `rsync -I --inplace FILE "$M"/checkpoint`, false, false},
		{"cp within the mount and mv", "sh", `cp FILE "$M"/a && cp "$M"/a "$M"/b && rm "$M"/a && mv "$M"/b "$M"/checkpoint`, false, false},
		{"python write", python, "import os\nopen(os.environ['M']+'/checkpoint','w').write(open('FILE').read())", true, false},
		{"python with", python, "import os\nwith open(os.environ['M']+'/checkpoint','w') as f:\n  f.write(open('FILE').read())", false, false},
		{"python r+", python, "import os\nwith open(os.environ['M']+'/checkpoint','r+') as f:\n  f.read()\n  f.seek(0)\n  f.truncate()\n  f.write(open('FILE').read())", false, false},
		{"python shutil.copy", python, "import os,shutil\nshutil.copy('FILE', os.environ['M']+'/checkpoint')", false, false},
		{"python os.replace", python, "import os\nd=os.environ['M']\nwith open(d+'/tmp1','w') as f:\n  f.write(open('FILE').read()); f.flush(); os.fsync(f.fileno())\nos.replace(d+'/tmp1', d+'/checkpoint')", false, false},
		{"node writeFileSync", node, "const fs=require('fs');fs.writeFileSync(process.env.M+'/checkpoint', fs.readFileSync('FILE'))", false, false},
		{"node copyFileSync", node, "const fs=require('fs');fs.copyFileSync('FILE', process.env.M+'/checkpoint')", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			runScript := func(file string) (string, int) {
				reset()
				script := "M='" + m.dir + "'; export M\n" + strings.ReplaceAll(c.script, "FILE", file)
				switch c.program {
				case python:
					return run(t, dir, python, "-c", "import os; os.environ['M']='"+m.dir+"'\n"+strings.ReplaceAll(c.script, "FILE", file))
				case node:
					return run(t, dir, node, "-e", "process.env.M='"+m.dir+"';"+strings.ReplaceAll(c.script, "FILE", file))
				case "bash":
					return run(t, dir, "bash", "-c", script)
				case "rsync":
					run(t, dir, "rsync", "--version")
				}
				return run(t, dir, "sh", "-c", script)
			}
			out, code := runScript("good.json")
			require.Zero(t, code, out)
			require.EqualValues(t, 5, m.epoch(), out)
			for _, file := range []string{"bad.json", "cut.json", "empty.json", "blank.json", "zeros.json", "mark.json"} {
				if file == "empty.json" && c.adds {
					continue // it writes and truncates nothing
				}
				out, code = runScript(file)
				require.EqualValues(t, 0, m.epoch(), file)
				if !c.silent {
					require.NotZero(t, code, "%s: %s", file, out)
				}
				require.Eventually(t, func() bool { // RELEASE comes after close has returned
					status := m.read(m.path("status"))
					return strings.Contains(status, "last checkpoint refused") && !strings.Contains(status, "(restored since)")
				}, callTimeout, time.Millisecond, file)
			}
		})
	}
	for _, name := range m.must(call{Op: "list", Path: m.dir}).Names {
		if !strings.HasPrefix(name, "new") && !strings.HasPrefix(name, "tmp") {
			require.NotContains(t, name, ".checkpoint", "a program left its scratch file")
		}
	}
}

func TestProgramsThatEditInPlace(t *testing.T) {
	for _, c := range []struct{ program, script string }{
		{"sed", `sed -i 's/"epoch": 0/"epoch": 5/' "$M"/checkpoint`},
		{"sed", `sed -i.bak 's/"epoch": 0/"epoch": 5/' "$M"/checkpoint`},
		{"perl", `perl -pi -e 's/"epoch": 0/"epoch": 5/' "$M"/checkpoint`},
		{"vim", `vim -Nes -u NONE -c '%s/"epoch": 0/"epoch": 5/' -c wq "$M"/checkpoint`},
		{"ed", `printf '1,$s/"epoch": 0/"epoch": 5/\nw\nq\n' | ed -s "$M"/checkpoint`},
	} {
		t.Run(c.script[:min(len(c.script), 10)], func(t *testing.T) {
			need(t, c.program)
			m := mount(t, 2)
			out, code := run(t, t.TempDir(), "sh", "-c", "M='"+m.dir+"'\n"+c.script)
			require.Zero(t, code, out)
			require.EqualValues(t, 5, m.epoch(), out)
		})
	}
}

func TestProgramsThatSave(t *testing.T) {
	m := mount(t, 2)
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: fd, N: 5000})
	m.must(call{Op: "close", FD: fd})
	want := m.read(m.path("checkpoint"))
	for _, script := range []string{
		`cp "$M"/checkpoint out`, `cp -p "$M"/checkpoint out`, `cat "$M"/checkpoint > out`, `cat < "$M"/checkpoint > out`, `dd if="$M"/checkpoint of=out bs=10 status=none`,
		`head -c 100000 "$M"/checkpoint > out`, `tail -c 100000 "$M"/checkpoint > out`, `tar -C "$M" -cf - checkpoint | tar -xOf - > out`,
	} {
		dir := t.TempDir()
		out, code := run(t, dir, "sh", "-c", "M='"+m.dir+"'\n"+script)
		require.Zero(t, code, "%s: %s", script, out)
		got, err := os.ReadFile(filepath.Join(dir, "out"))
		require.NoError(t, err)
		require.Equal(t, want, string(got), script)
	}
}

func TestTouchingControlFileDoesNothing(t *testing.T) {
	m := mount(t, 1)
	out, code := run(t, t.TempDir(), "sh", "-c", "set -e; cd '"+m.dir+"'; touch checkpoint; chmod 600 checkpoint; : >> checkpoint; : <> checkpoint; truncate -s 100 checkpoint")
	require.Zero(t, code, out)
	require.EqualValues(t, 1, m.tree.view.Load().number, "no restore")
	require.NotContains(t, m.read(m.path("status")), "refused")
	require.EqualValues(t, len(m.read(m.path("checkpoint"))), m.must(call{Op: "stat", Path: m.path("checkpoint")}).Size)
}

func TestEmptyDocumentIsRefused(t *testing.T) {
	for _, c := range []struct {
		script string
		silent bool // the result of close is ignored
	}{
		{": > checkpoint", true},
		{"truncate -s 0 checkpoint", false},
		{"cp /dev/null checkpoint", false},
		{"rm checkpoint; : > checkpoint", true},
		{"tee checkpoint < /dev/null", false},
		{"dd if=/dev/null of=checkpoint status=none", false},
		{"/usr/bin/python3 -c 'open(\"checkpoint\", \"w\").close()'", false},
		{"/usr/bin/python3 -c 'import os; os.truncate(\"checkpoint\", 0)'; : > checkpoint", true},
	} {
		m := mount(t, 1)
		require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 5}`))
		require.NotContains(t, m.read(m.path("status")), "refused", "what a shell closes before its command writes is no refusal")
		out, code := run(t, m.dir, "sh", "-c", c.script)
		require.Equal(t, c.silent, code == 0, "%s: %s", c.script, out)
		require.Eventually(t, func() bool {
			return strings.Contains(m.read(m.path("status")), "nothing was written, such as from an empty file")
		},
			callTimeout, time.Millisecond, c.script)
		require.EqualValues(t, 5, m.epoch(), c.script)
		out, code = run(t, m.dir, "bash", "-c", `echo '{"epoch": 6}' > checkpoint`)
		require.Zero(t, code, out)
		require.EqualValues(t, 6, m.epoch(), c.script)
		require.Contains(t, m.read(m.path("status")), "(restored since)", c.script)
	}
}

func TestWritesInAnyOrder(t *testing.T) {
	m := mount(t, 1)
	doc := `{"epoch": 3, "samples": 17}`
	fd := m.open(m.path("checkpoint"), unix.O_RDWR)
	m.must(call{Op: "pwrite", FD: fd, Off: 20, Data: []byte(doc[20:])})
	m.must(call{Op: "pwrite", FD: fd, Off: 5, Data: []byte(doc[5:20])})
	require.Equal(t, syscall.EINVAL, m.do(call{Op: "fsync", FD: fd}).Errno, "the beginning was not written")
	m.must(call{Op: "pwrite", FD: fd, Off: 0, Data: []byte(doc[:5])})
	require.EqualValues(t, 0, m.epoch())
	m.must(call{Op: "fsync", FD: fd})
	require.EqualValues(t, 3, m.epoch())
	m.must(call{Op: "pwrite", FD: fd, Off: int64(len(doc)), Data: []byte("\n")})
	m.must(call{Op: "fsync", FD: fd})
	m.must(call{Op: "close", FD: fd})
	require.EqualValues(t, 2, m.tree.view.Load().number, "restored once")
}

func TestConcurrentWritesTakeEffectAtomically(t *testing.T) {
	m := mount(t, 1)
	var writers []*agent
	var fds []int
	for range 4 {
		a := newAgent(t)
		writers, fds = append(writers, a), append(fds, a.open(m.path("checkpoint"), unix.O_WRONLY|unix.O_TRUNC))
	}
	for piece := range 3 {
		for i, a := range writers {
			doc := fmt.Sprintf(`{"epoch": %d, "samples": %d}`, i+10, i+100)
			lo, hi := len(doc)*piece/3, len(doc)*(piece+1)/3
			a.must(call{Op: "write", FD: fds[i], Data: []byte(doc[lo:hi])})
		}
	}
	for i, a := range writers {
		a.start(call{Op: "close", FD: fds[i]})
	}
	for _, a := range writers {
		require.Equal(t, syscall.Errno(0), a.wait().Errno)
	}
	s, err := checkpoint.Parse([]byte(m.read(m.path("checkpoint"))))
	require.NoError(t, err)
	require.Equal(t, []uint64{s.Epoch + 90}, s.Done[0].Consumed)
	require.EqualValues(t, 5, m.tree.view.Load().number)
}

func TestControlFileReappearsAfterUnlink(t *testing.T) {
	m := mount(t, 1)
	m.must(call{Op: "unlink", Path: m.path("checkpoint")})
	require.NotContains(t, m.must(call{Op: "list", Path: m.dir}).Names, "checkpoint")
	fd := m.open(m.path("checkpoint"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	m.must(call{Op: "write", FD: fd, Data: []byte(`{"epoch": 2}`)})
	m.must(call{Op: "close", FD: fd})
	require.EqualValues(t, 2, m.epoch())
	m.tree.hidden.last(hiddenFor, hiddenFor)
	m.must(call{Op: "unlink", Path: m.path("checkpoint")})
	require.Eventually(t, func() bool { return m.do(call{Op: "stat", Path: m.path("checkpoint")}).Errno == 0 }, callTimeout, hiddenFor/10)
	require.EqualValues(t, 2, m.epoch())
}

// Programs may be delayed between unlinking a file and creating it again: for others the name has
// come back by then.
func TestDelayedMvCanStillReplaceUnlinkedName(t *testing.T) {
	m := mount(t, 1)
	m.tree.hidden.last(0, callTimeout)
	dir := t.TempDir()
	for epoch := range uint64(3) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "saved"), fmt.Appendf(nil, `{"epoch": %d}`, epoch+2), 0o644))
		out, code := run(t, dir, "mv", "saved", m.path("checkpoint"))
		require.Zero(t, code, out)
		require.Equal(t, epoch+2, m.epoch())
	}
	out, code := run(t, dir, "sh", "-c", `rm "$0" && cat "$0"`, m.path("checkpoint"))
	require.Zero(t, code, out)
	require.Contains(t, out, `"epoch": 4`, "it is there for another process")
}

func TestRenamesOntoControlFile(t *testing.T) {
	m := mount(t, 1)
	scratch := func(doc string) {
		fd := m.open(m.path("tmp"), unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
		m.must(call{Op: "write", FD: fd, Data: []byte(doc)})
		m.must(call{Op: "close", FD: fd})
	}
	onto := call{Op: "rename", Path: m.path("tmp"), To: m.path("checkpoint")}
	scratch(`{"epoch": 4}`)
	m.must(onto)
	require.EqualValues(t, 4, m.epoch())
	require.NotContains(t, m.must(call{Op: "list", Path: m.dir}).Names, "tmp")

	scratch(`{"epoch": -4}`)
	require.Equal(t, syscall.EBADMSG, m.do(onto).Errno)
	require.Equal(t, `{"epoch": -4}`, m.read(m.path("tmp")), "a refused file stays where it was")
	require.EqualValues(t, 4, m.epoch())

	scratch(`{"epoch": 6}`)
	noReplace, exchange := onto, onto
	noReplace.Flags, exchange.Flags = unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE
	require.Equal(t, syscall.EEXIST, m.do(noReplace).Errno)
	require.Equal(t, syscall.EINVAL, m.do(exchange).Errno)
	require.EqualValues(t, 4, m.epoch())
	m.must(call{Op: "unlink", Path: m.path("checkpoint")})
	require.Equal(t, syscall.Errno(0), m.do(noReplace).Errno)
	require.EqualValues(t, 6, m.epoch())

	// What editors do that keep the old file as a backup.
	saved := m.read(m.path("checkpoint"))
	m.must(call{Op: "rename", Path: m.path("checkpoint"), To: m.path("checkpoint~")})
	require.Equal(t, syscall.Errno(0), m.write7(`{"epoch": 7}`))
	require.EqualValues(t, 7, m.epoch())
	require.Equal(t, saved, m.read(m.path("checkpoint~")))
	m.must(call{Op: "rename", Path: m.path("checkpoint~"), To: m.path("checkpoint")})
	require.EqualValues(t, 6, m.epoch())
}

// write7 creates the control file again.
func (m *mounted) write7(doc string) syscall.Errno {
	m.t.Helper()
	fd := m.open(m.path("checkpoint"), unix.O_CREAT|unix.O_WRONLY)
	m.must(call{Op: "write", FD: fd, Data: []byte(doc)})
	return m.do(call{Op: "close", FD: fd}).Errno
}

func TestScratchFilesBehaveLikeFiles(t *testing.T) {
	m := mount(t, 1)
	fd := m.open(m.path("a"), unix.O_CREAT|unix.O_RDWR)
	m.must(call{Op: "pwrite", FD: fd, Off: 3, Data: []byte("defg")})
	require.Equal(t, "\x00\x00\x00defg", m.read(m.path("a")))
	m.must(call{Op: "ftruncate", FD: fd, Off: 5})
	require.EqualValues(t, 5, m.must(call{Op: "stat", Path: m.path("a")}).Size)
	m.must(call{Op: "chmod", Path: m.path("a")})
	require.EqualValues(t, 0o600, m.must(call{Op: "stat", Path: m.path("a")}).Mode&0o777)
	m.must(call{Op: "rename", Path: m.path("a"), To: m.path("b")})
	require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path("a")}).Errno)
	require.Equal(t, "\x00\x00\x00de", m.read(m.path("b")))
	m.must(call{Op: "unlink", Path: m.path("b")})
	require.Equal(t, "\x00\x00\x00de", string(m.must(call{Op: "pread", FD: fd, N: 10}).Data), "an open file outlives its name")
	m.must(call{Op: "close", FD: fd})
	require.Equal(t, syscall.EROFS, m.do(call{Op: "rename", Path: m.path("status"), To: m.path("b")}).Errno)
	require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path("b")}).Errno)
}

func TestScratchFilesAreBounded(t *testing.T) {
	m := mount(t, 1)
	for i := range scratchFilesMax {
		m.must(call{Op: "close", FD: m.open(m.path(fmt.Sprint("s", i)), unix.O_CREAT|unix.O_WRONLY)})
	}
	require.Equal(t, syscall.ENOSPC, m.do(call{Op: "open", Path: m.path("one-more"), Flags: unix.O_CREAT | unix.O_WRONLY}).Errno)
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 1}`), "the control file needs no scratch file")
	m.roomless()

	half := int64(roomBytes / 2)
	m.must(call{Op: "truncate", Path: m.path("s0"), Off: half})
	draft := m.open(m.path("checkpoint"), unix.O_WRONLY)
	m.must(call{Op: "pwrite", FD: draft, Off: half - 1, Data: []byte(" ")})
	require.Equal(t, syscall.ENOSPC, m.do(call{Op: "truncate", Path: m.path("s1"), Off: 1}).Errno)
	require.Equal(t, syscall.ENOSPC, m.do(call{Op: "pwrite", FD: draft, Off: half, Data: []byte(" ")}).Errno)
	m.do(call{Op: "close", FD: draft})
	m.must(call{Op: "unlink", Path: m.path("s0")})
	require.Eventually(t, func() bool { // RELEASE comes after close has returned
		return m.do(call{Op: "truncate", Path: m.path("s1"), Off: roomBytes}).Errno == 0
	}, callTimeout, hiddenFor/100)
	require.Equal(t, syscall.EFBIG, m.do(call{Op: "truncate", Path: m.path("s1"), Off: roomBytes + 1}).Errno)
	for i := 1; i < scratchFilesMax; i++ {
		m.must(call{Op: "unlink", Path: m.path(fmt.Sprint("s", i))})
	}
	files, _ := m.tree.scratch.usage()
	require.Zero(t, files)
	m.roomless()
}

// roomless waits until neither scratch files nor drafts take room: what a handle takes is given
// back when it is released, which happens after close has returned.
func (m *mounted) roomless() {
	m.t.Helper()
	require.Eventually(m.t, func() bool { _, taken := m.tree.scratch.usage(); return taken == 0 }, callTimeout, time.Millisecond)
}
