package fs

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// consumed is the last entry of the mount's document.
func (m *mounted) consumed() []uint64 {
	m.t.Helper()
	s, err := checkpoint.Parse([]byte(m.read(m.path("checkpoint"))))
	require.NoError(m.t, err)
	return s.Done[len(s.Done)-1].Consumed
}

// write writes doc to the control file as most programs do.
func (m *mounted) write(doc string) syscall.Errno {
	m.t.Helper()
	fd := m.open(m.path("checkpoint"), unix.O_WRONLY|unix.O_TRUNC|unix.O_CREAT)
	r := m.do(call{Op: "write", FD: fd, Data: []byte(doc)})
	closed := m.do(call{Op: "close", FD: fd})
	if r.Errno != 0 {
		return r.Errno
	}
	return closed.Errno
}

func (m *mounted) samples(n uint64) checkpoint.Position {
	return checkpoint.Position{Done: []order.Done{order.First(n, m.data.spec.Order)}}
}

func TestDocumentContainsDeliveredRecords(t *testing.T) {
	m := mount(t, 2)
	require.Equal(t, []uint64{0, 0}, m.consumed())
	size := m.must(call{Op: "stat", Path: m.path("checkpoint")}).Size

	offsets := m.expect(checkpoint.Position{}, 0, 2)[stream.Offsets]
	end := func(n int) int64 { // of the first n records
		var v int64
		for i := 7; i >= 0; i-- {
			v = v<<8 | int64(offsets[8*n+i])
		}
		return v
	}
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: fd, N: int(end(10))})
	require.Equal(t, []uint64{10, 0}, m.consumed())
	m.must(call{Op: "pread", FD: fd, Off: end(10), N: int(end(20)-end(10)) - 1})
	require.Equal(t, []uint64{19, 0}, m.consumed(), "a record that lacks a byte was not delivered")
	m.must(call{Op: "pread", FD: fd, Off: end(20) - 1, N: 1})
	require.Equal(t, []uint64{20, 0}, m.consumed())

	m.read(m.path("worker-1.ids"))
	m.read(m.path("worker-1.offsets"))
	m.read(m.path("epoch-0/worker-1-of-2.rec"))
	onlooker := newAgent(t)
	look := onlooker.open(m.path("worker-0.rec"), unix.O_RDONLY)
	onlooker.must(call{Op: "pread", FD: look, Off: end(100), N: 50})
	onlooker.must(call{Op: "pread", FD: look, Off: end(19), N: 500})
	require.Equal(t, []uint64{20, 0}, m.consumed(), "identities, offsets, epochs and onlookers move nothing")

	m.must(call{Op: "close", FD: fd})
	onlooker.must(call{Op: "pread", FD: look, Off: end(20), N: int(end(25) - end(20))})
	require.Equal(t, []uint64{25, 0}, m.consumed(), "the next handle that covers the mark takes over")
	m.read(m.path("worker-1.rec"))
	require.Equal(t, []uint64{25, 500}, m.consumed())
	require.Equal(t, size, m.must(call{Op: "stat", Path: m.path("checkpoint")}).Size)
}

func TestFileReopenedForEveryRecordCountsAsDelivered(t *testing.T) {
	m := mount(t, 2)
	// In one process: the next opening must follow soon after the last close.
	out, code := run(t, m.dir, "/usr/bin/python3", "-c", `
import os, struct
numbers = open("worker-0.offsets", "rb").read()
starts = struct.unpack("<%dQ" % (len(numbers) // 8), numbers)
for begin, end in zip(starts, starts[1:]):
    fd = os.open("worker-0.rec", os.O_RDONLY)
    assert len(os.pread(fd, end - begin, begin)) == end - begin
    os.close(fd)
`)
	require.Zero(t, code, out)
	require.Equal(t, []uint64{500, 0}, m.consumed())
}

func TestPaddingIsNeverCounted(t *testing.T) {
	d := newFakeDataset(3)
	d.spec.Deal.Tail, d.spec.Deal.Batch = "pad", 7
	m := mountFake(t, d)
	for _, name := range []string{"worker-0.rec", "worker-1.rec", "worker-2.rec"} {
		m.read(m.path(name))
	}
	sum := uint64(0)
	for _, n := range m.consumed() {
		sum += n
	}
	require.Equal(t, d.records, sum)
}

func TestRestoreImmediatelyChangesSizesInodesAndBytes(t *testing.T) {
	m := mount(t, 2)
	for i, c := range []struct {
		doc string
		at  checkpoint.Position
	}{
		{`{"epoch": 0, "samples": 100}`, m.samples(100)},
		{`{"epoch": 3}`, checkpoint.Position{Epoch: 3}},
		{`{"epoch": 0, "samples": 1000}`, m.samples(1000)},
		{`{"epoch": 0, "samples": 0}`, checkpoint.Position{}},
	} {
		before := m.must(call{Op: "stat", Path: m.path("worker-0.rec")})
		require.Equal(t, syscall.Errno(0), m.write(c.doc), c.doc)
		for w := range uint64(2) {
			want := m.expect(c.at, w, 2)
			for _, k := range kinds {
				path := m.path(fileName{worker: w, kind: k}.format(".rec"))
				st := m.must(call{Op: "stat", Path: path})
				require.EqualValues(t, len(want[k]), st.Size, "%d: %s", i, path)
				require.Equal(t, string(want[k]), m.read(path))
			}
		}
		require.NotEqual(t, before.Ino, m.must(call{Op: "stat", Path: m.path("worker-0.rec")}).Ino)
		require.Contains(t, m.must(call{Op: "list", Path: m.dir}).Names, "epoch-"+string(rune('0'+c.at.Epoch)))
		doc := m.read(m.path("checkpoint"))
		require.EqualValues(t, len(doc), m.must(call{Op: "stat", Path: m.path("checkpoint")}).Size)
		require.Equal(t, syscall.Errno(0), m.write(doc), "what was read can be written")
	}
	require.Equal(t, string(m.expect(m.samples(5), 0, 2)[0]), m.read(m.path("epoch-0/from-5/worker-0-of-2.rec")), "epochs are pure")
}

func TestHandlesFromBeforeRestoreAreStale(t *testing.T) {
	m := mount(t, 2)
	paths := []string{"worker-0.rec", "worker-0.ids", "worker-1.offsets"}
	var old []int
	for _, p := range paths {
		old = append(old, m.open(m.path(p), unix.O_RDONLY))
	}
	epoch := m.open(m.path("epoch-0/worker-0-of-2.rec"), unix.O_RDONLY)
	doc := m.open(m.path("checkpoint"), unix.O_RDONLY)
	saved := m.read(m.path("checkpoint"))
	size := m.must(call{Op: "fstat", FD: old[0]}).Size
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 0, "samples": 400}`))
	for i, p := range paths {
		require.Equal(t, syscall.ESTALE, m.do(call{Op: "pread", FD: old[i], N: 100}).Errno, p)
		fd := m.open(m.path(p), unix.O_RDONLY)
		m.must(call{Op: "pread", FD: fd, N: 100})
		require.Equal(t, syscall.ESTALE, m.do(call{Op: "pread", FD: old[i], N: 100}).Errno, "%s with the new one open", p)
	}
	require.Equal(t, size, m.must(call{Op: "fstat", FD: old[0]}).Size, "an inode's size never changes")
	require.NotEqual(t, size, m.must(call{Op: "stat", Path: m.path("worker-0.rec")}).Size)
	require.Equal(t, string(m.expect(checkpoint.Position{}, 0, 2)[0][:100]), string(m.must(call{Op: "pread", FD: epoch, N: 100}).Data))
	require.Equal(t, saved, string(m.must(call{Op: "pread", FD: doc, N: 1 << 16}).Data), "a document that is being read stays what it was")
	require.EqualValues(t, len(saved), m.must(call{Op: "fstat", FD: doc}).Size)
}

func TestRestoreWithDeliveredRecordsGivesEveryRecordOnce(t *testing.T) {
	m := mount(t, 3)
	take := func(w uint64, n int) {
		name := fileName{worker: w}.format(".rec")
		fd := m.open(m.path(name), unix.O_RDONLY)
		m.must(call{Op: "pread", FD: fd, N: n})
		m.must(call{Op: "close", FD: fd})
	}
	take(0, 3000)
	take(2, 1000)
	doc := m.read(m.path("checkpoint"))
	consumed := m.consumed()
	require.NotZero(t, consumed[0])
	require.Zero(t, consumed[1])
	seen := make(map[string]int)
	ids := func(b []byte) {
		for ; len(b) > 0; b = b[16:] {
			seen[string(b[:16])]++
		}
	}
	for w := range uint64(3) {
		ids([]byte(m.read(m.path(fileName{worker: w, kind: stream.IDs}.format(".rec"))))[:16*consumed[w]])
	}
	require.Equal(t, syscall.Errno(0), m.write(doc))
	require.Equal(t, []uint64{0, 0, 0}, m.consumed())
	for w := range uint64(3) {
		ids([]byte(m.read(m.path(fileName{worker: w, kind: stream.IDs}.format(".rec")))))
	}
	require.Len(t, seen, 1000)
	for id, n := range seen {
		require.Equal(t, 1, n, "%x", id)
	}
}

func TestRefusedDocumentsChangeNothingAndStatusSaysWhy(t *testing.T) {
	m := mount(t, 2)
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 1, "samples": 7}`))
	good := m.read(m.path("checkpoint"))
	worker := m.must(call{Op: "stat", Path: m.path("worker-0.rec")})
	for _, c := range []struct{ name, doc string }{
		{"no JSON", "x"},
		{"another type", "[]"},
		{"incomplete", `{"epoch":`},
		{"text behind", `{"epoch": 1} {"epoch": 2}`},
		{"unknown field", `{"epoch": 1, "sample": 3}`},
		{"too many samples", `{"epoch": 1, "samples": 1099511627776}`},
		{"negative", `{"epoch": -1}`},
		{"fraction", `{"epoch": 1.5}`},
		{"another dataset", strings.Replace(good, m.data.Fingerprint(), strings.Repeat("0", 64), 1)},
		{"another seed", strings.Replace(good, `"seed": 0`, `"seed": 1`, 1)},
		{"nothing but space", "  \n"},
	} {
		require.NotEqual(t, good, c.doc, c.name)
		require.Equal(t, syscall.EINVAL, m.write(c.doc), c.name)
		require.Equal(t, good, m.read(m.path("checkpoint")), c.name)
		require.Equal(t, worker.Ino, m.must(call{Op: "stat", Path: m.path("worker-0.rec")}).Ino, c.name)
		status := m.read(m.path("status"))
		require.Contains(t, status, "last checkpoint refused: ", c.name)
	}
	var r statusReport
	require.NoError(t, json.Unmarshal([]byte(m.read(m.path("status.json"))), &r))
	require.NotNil(t, r.LastRefusal)
	require.False(t, r.LastRefusal.Restored)
	require.GreaterOrEqual(t, r.Refusals, uint64(11))
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 2}`))
	require.Contains(t, m.read(m.path("status")), "(restored since)")
}

// Shells check only write, so an error that is known then must be returned by write.
func TestCompletingWriteRefusesDocumentThatCannotBeRestored(t *testing.T) {
	m := mount(t, 2)
	good := m.read(m.path("checkpoint"))
	for _, c := range []struct{ name, doc string }{
		{"too many samples", `{"epoch": 1, "samples": 1099511627776}`},
		{"another dataset", strings.Replace(good, m.data.Fingerprint(), strings.Repeat("0", 64), 1)},
		{"another seed", strings.Replace(good, `"seed": 0`, `"seed": 1`, 1)},
		{"more than there is", strings.Replace(good, `[   0,    0]`, `[ 501,    0]`, 1)},
	} {
		require.NotEqual(t, good, c.doc, c.name)
		fd := m.open(m.path("checkpoint"), unix.O_WRONLY|unix.O_TRUNC)
		begin := strings.LastIndex(c.doc, "}")
		m.must(call{Op: "write", FD: fd, Data: []byte(c.doc[:begin])})
		require.Equal(t, syscall.EINVAL, m.do(call{Op: "write", FD: fd, Data: []byte(c.doc[begin:])}).Errno, c.name)
		require.Equal(t, syscall.EINVAL, m.do(call{Op: "close", FD: fd}).Errno, c.name)
		for _, shell := range []string{"sh", "bash"} {
			_, code := run(t, m.dir, shell, "-c", `echo "$1" > checkpoint`, "sh", c.doc)
			require.NotZero(t, code, "%s in %s", c.name, shell)
		}
		require.Equal(t, good, m.read(m.path("checkpoint")), c.name)
	}
}

func TestDocumentsOverLimitsAreTooLarge(t *testing.T) {
	m := mount(t, 1)
	fd := m.open(m.path("checkpoint"), unix.O_WRONLY)
	m.must(call{Op: "pwrite", FD: fd, Data: []byte(`{"epoch": 1`)})
	require.Equal(t, syscall.EFBIG, m.do(call{Op: "pwrite", FD: fd, Off: checkpoint.MaxBytes, Data: []byte("}")}).Errno)
	require.Equal(t, syscall.EFBIG, m.do(call{Op: "close", FD: fd}).Errno)
	m.roomless()
	require.Contains(t, m.read(m.path("status")), "last checkpoint refused: ")
	require.Contains(t, m.read(m.path("status")), checkpoint.ErrTooLarge.Error())
	require.EqualValues(t, 1, m.tree.view.Load().number)

	entry := `{"batch": 2, "consumed": [0, 1]}`
	good := m.read(m.path("checkpoint"))
	at := strings.Index(good, `"done": [`) + len(`"done": [`)
	many := good[:at] + strings.Repeat(entry+", ", checkpoint.MaxEntries) + entry + "]}\n"
	require.Equal(t, syscall.EFBIG, m.write(many))
	require.Equal(t, good, m.read(m.path("checkpoint")))
}

func TestRestoreWakesWaitingReaders(t *testing.T) {
	m := mount(t, 1)
	waiting := make(chan struct{}, 1)
	m.data.setFault(func(ctx context.Context, _ uint64, _ int64) error {
		waiting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	reader := newAgent(t)
	fd := reader.open(m.path("worker-0.rec"), unix.O_RDONLY)
	reader.start(call{Op: "pread", FD: fd, N: 100})
	<-waiting
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 1}`))
	require.Equal(t, syscall.ESTALE, reader.wait().Errno)
}
