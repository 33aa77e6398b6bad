package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// write writes a document as a careful program does, and returns the errors of write and close.
func (m *mount) write(doc []byte) error {
	f, err := os.OpenFile(m.path("checkpoint"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(doc)
	return errors.Join(err, f.Close())
}

func TestRefusedDocumentsChangeNothingAndStatusSaysWhy(t *testing.T) {
	d := plain(t, "jsonl", 4)
	m := mountDataset(t, d, usual())
	m.take(d, 1, 4)
	before := m.read("checkpoint")
	open, err := os.Open(m.path("worker-1.jsonl"))
	require.NoError(t, err)
	defer open.Close()
	good := m.checkpoint()
	variant := func(change func(*document)) string {
		doc := documentOf(t, before)
		change(&doc)
		return string(doc.json(t))
	}
	withOrder := func(field, value string) string {
		return variant(func(d *document) { d.Order[field] = json.RawMessage(value) })
	}
	for _, c := range []struct{ name, reason, doc string }{
		{"no document", "incomplete", "\n"},
		{"half a document", "incomplete", string(before[:len(before)/2])},
		{"no JSON", "expected {", "epoch 3\n"},
		{"text after the document", "text after the document", string(before) + "x"},
		{"two documents", "text after the document", string(before) + string(before)},
		{"another dataset", "another dataset", variant(func(d *document) { d.Dataset = strings.Repeat("0", 64) })},
		{"another version", "version is 2", variant(func(d *document) { d.Version = 2 })},
		{"another seed", "order.seed is 43", withOrder("seed", "43")},
		{"another shuffle", "order.shuffle is block", withOrder("shuffle", `"block"`)},
		{"another size", "order.size is 49", withOrder("size", "49")},
		{"other lanes", "order.lanes is 8", withOrder("lanes", "8")},
		{"other groups", "order.groups is 2", withOrder("groups", "2")},
		{"another batch of the order", "order.batch is 2", withOrder("batch", "2")},
		{"other chunk bytes", "order.chunk_bytes is 3001", withOrder("chunk_bytes", "3001")},
		{"other chunk records", "order.chunk_records is 9", withOrder("chunk_records", "9")},
		{"an unknown field", "sample", `{"epoch": 1, "sample": 3}`},
		{"an unknown field of the order", "lane", withOrder("lane", "4")},
		{"a missing field of the order", "lacks lanes", variant(func(d *document) { delete(d.Order, "lanes") })},
		{"a missing field", "lacks order", `{"version": 1, "dataset": "` + good.Dataset + `", "epoch": 0, "done": []}`},
		{"samples beside a full form", "samples", strings.Replace(string(before), `"epoch"`, `"samples": 3, "epoch"`, 1)},
		{"a negative epoch", "(-1)", `{"epoch": -1}`},
		{"an epoch that is no number", "epoch", `{"epoch": "1"}`},
		{"an epoch with a fraction", "1.5", `{"epoch": 1.5}`},
		{"an epoch beyond 64 bits", "18446744073709551616", `{"epoch": 18446744073709551616}`},
		{"more samples than records", "1099511627776", `{"epoch": 1, "samples": 1099511627776}`},
		{"samples without an epoch", "lacks epoch", `{"samples": 1}`},
		{"a worker that took too many", "99999", variant(func(d *document) { d.Done = []taken{{Batch: 1, Consumed: []int{1, 99999}}} })},
		{"a negative count", "(-1)", variant(func(d *document) { d.Done = []taken{{Batch: 1, Consumed: []int{-1}}} })},
		{"a batch of 0", "batch (0)", variant(func(d *document) { d.Done = []taken{{Batch: 0, Consumed: []int{1}}} })},
		{"an entry without workers", "consumed", variant(func(d *document) { d.Done = []taken{{Batch: 1, Consumed: []int{}}} })},
		{"an unknown deal", "other", variant(func(d *document) { d.Done = []taken{{Batch: 1, Deal: "other", Consumed: []int{1}}} })},
		{"a key that comes twice", "twice", `{"epoch": 1, "epoch": 2}`},
		{"an impossible entry further on", "entry 2", variant(func(d *document) {
			d.Done = []taken{{Batch: 1, Consumed: []int{9}}, {Batch: 1, Consumed: []int{99999}}}
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			refusals := m.status().Refusals
			require.ErrorIs(t, m.write([]byte(c.doc)), syscall.EINVAL, c.doc)
			require.Equal(t, string(before), string(m.read("checkpoint")), "a refused document changes nothing")
			require.Greater(t, m.status().Refusals, refusals)
			require.Contains(t, m.status().LastRefusal.Reason, c.reason)
			require.Contains(t, string(m.read("status")), m.status().LastRefusal.Reason, "status says it in words")
			_, err := open.ReadAt(make([]byte, 10), 1) // a read from the start would make it the reader
			require.NoError(t, err, "handles stay good")
		})
	}
	for i, line := range []string{`cp "$1" "$2"`, `cat "$1" > "$2"`, `tee "$2" < "$1" > /dev/null`, `mv "$1" "$2"`, `dd if="$1" of="$2" status=none`} {
		t.Run(line, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "other.json")
			require.NoError(t, os.WriteFile(file, []byte(withOrder("seed", fmt.Sprint(1000+i))), 0o600))
			r := command(t, nil, nil, "sh", "-ec", line, "sh", file, m.path("checkpoint"))
			require.NotZero(t, r.code, "the program sees the refusal")
			require.Contains(t, string(m.read("status")), fmt.Sprintf("order.seed is %d", 1000+i), "status says which seed was not the mount's")
			require.Equal(t, string(before), string(m.read("checkpoint")))
		})
	}
	require.NoError(t, m.write([]byte(`{"epoch": 0}`)), "the mount still takes a good one")
}

func TestDocumentsOverLimitsAreTooLarge(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	before := m.read("checkpoint")

	doc := documentOf(t, before)
	doc.Done = nil
	for range 1025 {
		doc.Done = append(doc.Done, taken{Batch: 1, Consumed: []int{0, 0}})
	}
	require.ErrorIs(t, m.write(doc.json(t)), syscall.EFBIG, "1025 entries")

	huge := append(before[:len(before)-2:len(before)-2], make([]byte, 17<<20)...)
	for i := len(before) - 2; i < len(huge); i++ {
		huge[i] = ' '
	}
	err := m.write(huge)
	require.True(t, errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.ENOSPC), "17 MiB of spaces: %v", err)
	require.Equal(t, string(before), string(m.read("checkpoint")))
	m.requireAlive()
}

func TestDocumentsMayArriveInPieces(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	f, err := os.OpenFile(m.path("checkpoint"), os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	for _, b := range []byte("{\n \"epoch\": 5,\n \"samples\": 7 }\n\n") {
		_, err = f.Write([]byte{b})
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	require.EqualValues(t, 5, m.checkpoint().Epoch)
}

func TestSedEditsCheckpointInPlace(t *testing.T) {
	d := plain(t, "jsonl", 2)
	m := mountDataset(t, d, usual())
	m.take(d, 0, 2)
	shell(t, `sed -i 's/"epoch": 0/"epoch": 6/' "$1"`, m.path("checkpoint"))
	doc := m.checkpoint()
	require.EqualValues(t, 6, doc.Epoch)
	require.Equal(t, []taken{{Batch: 1, Consumed: []int{2, 0, 0}}, {Batch: 1, Consumed: []int{0, 0, 0}}}, doc.Done)
	require.NotContains(t, strings.Join(names(t, m.dir), " "), "sed", "its scratch file is gone")
}

func TestTouchingCheckpointHasNoEffect(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	before := m.read("checkpoint")
	for _, line := range []string{`touch "$1"`, `chmod 600 "$1"`, `: >> "$1"`} {
		shell(t, line, m.path("checkpoint"))
		require.Equal(t, string(before), string(m.read("checkpoint")), line)
	}
	shell(t, `rm "$1"`, m.path("checkpoint")) // mv from another file system needs that
	m.until(func() bool {
		b, err := os.ReadFile(m.path("checkpoint"))
		return err == nil && string(b) == string(before)
	}, "the name comes back by itself")
}

func TestScratchFilesAreLimitedAndOnlyInRoot(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	for i := range 16 {
		require.NoError(t, os.WriteFile(m.path("scratch-%d", i), []byte("{}"), 0o600))
	}
	require.ErrorIs(t, os.WriteFile(m.path("one-more"), []byte("{}"), 0o600), syscall.ENOSPC)
	require.Contains(t, names(t, m.dir), "scratch-3")
	require.Equal(t, "{}", string(m.read("scratch-3")))
	require.ErrorIs(t, os.WriteFile(m.path("epoch-0/x"), nil, 0o600), syscall.EROFS)
	require.ErrorIs(t, os.Rename(m.path("scratch-1"), m.path("checkpoint")), syscall.EBADMSG, "a refused rename")
	for i := range 16 {
		require.NoError(t, os.Remove(m.path("scratch-%d", i)))
	}
	require.NoError(t, os.WriteFile(m.path("one-more"), make([]byte, 1<<20), 0o600))
	require.ErrorIs(t, os.WriteFile(m.path("large"), make([]byte, 17<<20), 0o600), syscall.ENOSPC)
	m.requireAlive()
}

func TestHandlesOpenedBeforeRestoreAreStale(t *testing.T) {
	d := plain(t, "jsonl", 4)
	m := mountDataset(t, d, usual())
	var open []*os.File
	for _, name := range []string{"worker-0.jsonl", "worker-0.ids", "worker-0.offsets"} {
		f, err := os.Open(m.path("%s", name))
		require.NoError(t, err)
		defer f.Close()
		_, err = f.Read(make([]byte, 8))
		require.NoError(t, err)
		open = append(open, f)
	}
	epoch, err := os.Open(m.path("epoch-0/worker-0-of-3.jsonl"))
	require.NoError(t, err)
	defer epoch.Close()
	before, err := os.Stat(m.path("worker-0.jsonl"))
	require.NoError(t, err)

	m.restore([]byte(`{"epoch": 0, "samples": 30}`))
	for _, f := range open {
		_, err := f.ReadAt(make([]byte, 8), 0)
		require.ErrorIs(t, err, syscall.ESTALE, f.Name())
	}
	_, err = epoch.ReadAt(make([]byte, 8), 0)
	require.NoError(t, err, "files under epoch-N have nothing to do with a restore")
	after, err := os.Stat(m.path("worker-0.jsonl"))
	require.NoError(t, err)
	require.NotEqual(t, before.Size(), after.Size(), "stat shows the new size at once")
	require.False(t, os.SameFile(before, after), "the restored file is a new inode")
	requireFile(t, m.read("epoch-0/from-30/worker-0-of-3.jsonl"), m.path("worker-0.jsonl"))
}

func TestMappingDoesNotSurviveRestore(t *testing.T) {
	d := plain(t, "jsonl", 4)
	m := mountDataset(t, d, usual())
	want := newReference(t, d).ask(question{settings: usual(), Worker: 0, From: 30, Kind: "data"})
	got := script(t, python(t), `
import mmap, sys
path, checkpoint = sys.argv[1:]
before = open(path, "rb")
old = mmap.mmap(before.fileno(), 0, prot=mmap.PROT_READ)
old[:100]
with open(checkpoint, "w") as f:
    f.write('{"epoch": 0, "samples": 30}')
after = open(path, "rb")
sys.stdout.buffer.write(mmap.mmap(after.fileno(), 0, prot=mmap.PROT_READ))
`, m.path("worker-0.jsonl"), m.path("checkpoint"))
	requireSameBytes(t, want, got, "a new mapping after the restore")
}

func TestMarkFollowsOneSequentialReader(t *testing.T) {
	d := plain(t, "jsonl", 6)
	s := usual()
	s.Workers = 2
	m := mountDataset(t, d, s)
	offsets := splitOffsets(m.read("worker-0.offsets"))
	consumed := func() []int { return last(m.checkpoint().Done).Consumed }
	readAt := func(f *os.File, from, to uint64) {
		t.Helper()
		_, err := f.ReadAt(make([]byte, to-from), int64(from))
		require.NoError(t, err)
	}
	open := func(path string) *os.File {
		t.Helper()
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}

	require.Equal(t, []int{0, 0}, consumed())
	m.read("epoch-0/worker-0-of-2.jsonl")
	m.read("worker-0.ids")
	require.Equal(t, []int{0, 0}, consumed(), "files under epoch-N, ids and offsets are no deliveries")

	reader := open(m.path("worker-0.jsonl"))
	readAt(reader, offsets[0], offsets[3])
	require.Equal(t, []int{3, 0}, consumed())
	readAt(reader, offsets[3], offsets[4]-1)
	require.Equal(t, []int{3, 0}, consumed(), "a record counts when it is whole")
	readAt(reader, offsets[9], offsets[10])
	require.Equal(t, []int{10, 0}, consumed(), "seeking forward counts as read")
	readAt(reader, offsets[1], offsets[2])
	require.Equal(t, []int{10, 0}, consumed(), "looking back takes nothing back")

	other := open(m.path("worker-0.jsonl"))
	readAt(other, offsets[9], offsets[15])
	require.Equal(t, []int{10, 0}, consumed(), "another handle does not move the mark while the reader is there")
	require.Contains(t, string(m.read("status")), "worker-0")

	require.NoError(t, reader.Close())
	readAt(other, offsets[11], offsets[12])
	require.Equal(t, []int{10, 0}, consumed(), "a read that does not cover the mark takes nothing over")
	readAt(other, offsets[9], offsets[14])
	require.Equal(t, []int{14, 0}, consumed(), "a read that covers it does")
}

func TestPaddingIsNeverCountedAsConsumed(t *testing.T) {
	d := plain(t, "jsonl", 3)
	s := usual()
	s.Workers, s.Batch, s.Tail = 4, 50, "pad"
	m := mountDataset(t, d, s)
	sum := 0
	for w := range s.Workers {
		m.read("worker-%d.jsonl", w)
	}
	for _, n := range last(m.checkpoint().Done).Consumed {
		sum += n
	}
	require.Len(t, newReference(t, d).g(s), sum, "worker files hold more than that: they are padded")
}

func TestWriterThatDiesHalfwayChangesNothing(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	before := m.read("checkpoint")
	// The shell keeps the file open, writes half a document and is killed.
	cmd := exec.Command("sh", "-c", `exec 3> "$1"; printf '{"epoch": ' >&3; kill -9 $$`, "sh", m.path("checkpoint"))
	require.Error(t, cmd.Run())
	require.Equal(t, string(before), string(m.read("checkpoint")))
	m.restore([]byte(`{"epoch": 2}`))
}
