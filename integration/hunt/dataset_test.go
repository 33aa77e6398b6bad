package hunt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/reference"
)

const (
	// shards is the number of shards of a dataset: enough for one for each change.
	shards = 32
	// healthy is how many of them, the last ones, are never changed.
	healthy = 6
	targets = shards - healthy
)

// dataset holds a kind's files in both versions, and the streams of version A.
type dataset struct {
	k       kind
	a, b    [shards][]file
	streams map[order][]*stream
}

// order is how a mount shuffles records and assigns them to workers.
type order struct {
	mixed bool // otherwise each shard is a worker's stream
	chunk int  // bytes
}

func (o order) String() string {
	if o.mixed {
		return "mixed"
	}
	return "in order"
}

// settings returns the order as flags of the program, which are also options of the reference.
func (o order) settings() map[string]any {
	s := map[string]any{"seed": 5, "chunk-bytes": o.chunk, "chunk-records": 1 << 16, "shuffle": "none", "deal": "contiguous", "workers": shards}
	if o.mixed {
		s["shuffle"], s["shuffle-size"], s["lanes"], s["deal"], s["workers"] = "reservoir", 120, 6, "interleaved", mixedWorkers
	}
	return s
}

func (o order) flags() []string {
	var flags []string
	for name, value := range o.settings() {
		flags = append(flags, "--"+name, fmt.Sprint(value))
	}

	return flags
}

// deals returns the epochs and numbers of workers whose streams are read, beginning with those of
// the mount's worker files.
func (o order) deals() [][2]int {
	if o.mixed {
		return [][2]int{{0, mixedWorkers}, {1, mixedWorkers}}
	}
	return [][2]int{{0, shards}, {1, shards}, {0, 3}}
}

const mixedWorkers = 4

// stream is a file of a mount: its expected content, and where that comes from.
type stream struct {
	name    string // below the mount
	bytes   []byte
	offsets []int64 // of each record and of the epilogue
	shard   []int   // of each record
	of      [shards][]int
}

// datasets caches the datasets by kind.
var datasets = map[string]*dataset{}

func makeDataset(k kind) *dataset {
	if d := datasets[k.name]; d != nil {
		return d
	}
	d := &dataset{k: k, streams: map[order][]*stream{}}
	for i := range shards {
		d.a[i], d.b[i] = k.files(i, versionA), k.files(i, versionB)
	}
	datasets[k.name] = d
	return d
}

// write writes version A below dir.
func (d *dataset) write(t testing.TB, dir string) {
	t.Helper()
	for _, files := range d.a {
		for _, f := range files {
			full := filepath.Join(dir, f.path)
			require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
			require.NoError(t, os.WriteFile(full, f.bytes, 0o644))
		}
	}
}

// startReference starts the reference on a directory.
func (d *dataset) startReference(dir string, more ...string) (*reference.Process, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, err
	}
	return reference.Start(python, "../reference", dir, environment(), append(d.k.flags[:len(d.k.flags):len(d.k.flags)], more...))
}

// ask requests a stream from a reference.
func ask(p *reference.Process, o order, epoch, worker, workers int, kind string) ([]byte, error) {
	question := o.settings()
	question["epoch"], question["worker"], question["workers"], question["kind"] = epoch, worker, workers, kind
	return p.Ask(question)
}

// streamsOf returns the files of version A to read, as the reference computes them.
func (d *dataset) streamsOf(t testing.TB, o order) []*stream {
	t.Helper()
	if s := d.streams[o]; s != nil {
		return s
	}
	dir := t.TempDir()
	d.write(t, dir)
	p, err := d.startReference(dir)
	require.NoError(t, err)
	defer p.Close()
	var streams []*stream
	for _, deal := range o.deals() {
		for w := range deal[1] {
			var parts [3][]byte
			for i, kind := range []string{"data", "ids", "offsets"} {
				parts[i], err = ask(p, o, deal[0], w, deal[1], kind)
				require.NoError(t, err)
			}
			s, err := d.newStream(parts[0], parts[1], parts[2])
			require.NoError(t, err)
			s.name = fmt.Sprintf("epoch-%d/worker-%d-of-%d%s", deal[0], w, deal[1], d.k.streamExt)
			streams = append(streams, s)
		}
	}
	d.streams[o] = streams
	return streams
}

func (d *dataset) newStream(data, ids, offsets []byte) (*stream, error) {
	numbers := map[string]int{}
	for i := range shards {
		sum := sha256.Sum256([]byte("lsiofs/1 shard " + d.k.shardPath(i)))
		numbers[string(sum[:8])] = i
	}
	s := &stream{bytes: data}
	for ; len(offsets) > 0; offsets = offsets[8:] {
		s.offsets = append(s.offsets, int64(binary.LittleEndian.Uint64(offsets)))
	}
	for ; len(ids) > 0; ids = ids[16:] {
		number, known := numbers[string(ids[:8])]
		if !known {
			return nil, fmt.Errorf("an ID of no shard: %x", ids[:16])
		}
		s.of[number] = append(s.of[number], len(s.shard))
		s.shard = append(s.shard, number)
	}
	if len(s.offsets) != len(s.shard)+1 {
		return nil, fmt.Errorf("%d offsets of %d records", len(s.offsets), len(s.shard))
	}
	return s, nil
}

func (s *stream) size() int64 { return int64(len(s.bytes)) }

// record returns the index of the record that holds byte off, or the number of records if it is
// after the last.
func (s *stream) record(off int64) int {
	return max(0, sort.Search(len(s.shard), func(i int) bool { return s.offsets[i+1] > off }))
}

// needs returns the shards that a read of [off, end) has bytes of, in the order of their records
// and with duplicates.
func (s *stream) needs(off, end int64) []int {
	from := s.record(off)
	to := from
	for to < len(s.shard) && s.offsets[to] < end {
		to++
	}
	return s.shard[from:to]
}

// differs describes what is wrong with bytes that were read at off; "" if nothing is.
func (s *stream) differs(off int64, got []byte) string {
	want := s.bytes[min(off, s.size()):min(off+int64(len(got)), s.size())]
	if bytes.Equal(want, got) {
		return ""
	}
	if len(got) > len(want) {
		return fmt.Sprintf("%d bytes more than there are", len(got)-len(want))
	}
	first, wrong := -1, 0
	for i := range got {
		if got[i] != want[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	at := off + int64(first)
	i := s.record(at)
	text := fmt.Sprintf("%d wrong bytes, the first at %d", wrong, at)
	if i < len(s.shard) {
		text += fmt.Sprintf(" (record %d, of shard %d, byte %d of it)", i, s.shard[i], at-s.offsets[i])
	}
	end := min(len(got), first+2*wordBytes)
	return fmt.Sprintf("%s: %s, want %s", text, origin(got[first:end]), origin(want[first:end]))
}

func TestStreamReportsWrongBytesAndTheirOrigin(t *testing.T) {
	data := append(content(100, 1, 0, versionA), content(60, 2, 32, versionA)...)
	s := &stream{bytes: append(data, "END"...), offsets: []int64{0, 100, 160}, shard: []int{1, 2}}
	require.Empty(t, s.differs(50, s.bytes[50:]))
	require.Empty(t, s.differs(500, nil))
	require.Contains(t, s.differs(150, make([]byte, 14)), "1 bytes more than there are")
	for off := range s.bytes {
		wrong := bytes.Clone(s.bytes)
		wrong[off] ^= 1
		require.Contains(t, s.differs(0, wrong), fmt.Sprintf("1 wrong bytes, the first at %d", off))
	}
	later := append(bytes.Clone(data[:100]), content(60, 2, 32, versionB)...)
	require.Contains(t, s.differs(0, later), "(record 1, of shard 2, byte 12 of it): version B of shard 2 at 48, want version A of shard 2 at 48")

	require.Equal(t, []int{1, 2}, s.needs(99, 101))
	require.Equal(t, []int{2}, s.needs(100, 101))
	require.Empty(t, s.needs(160, 163), "the epilogue is of no shard")
	require.EqualValues(t, 0, s.healthyUntil(0))
}
