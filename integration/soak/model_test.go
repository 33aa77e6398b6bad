package soak

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/reference"
)

// settings describe an order and an assignment: flags of the program and, by the same names,
// options of the reference.
type settings map[string]any

func (s settings) flags() []string {
	var flags []string
	for name, value := range s {
		flags = append(flags, "--"+name, fmt.Sprint(value))
	}
	return flags
}

func (s settings) number(name string) int { return s[name].(int) }
func (s settings) word(name string) string {
	return s[name].(string)
}

// drawSettings draws random settings for a dataset with that many records.
func drawSettings(r *rand.Rand, records int) settings {
	return settings{
		"seed": r.IntN(1 << 30), "shuffle": []string{"none", "reservoir", "reservoir", "block", "full"}[r.IntN(5)],
		"shuffle-size": r.IntN(records * 5 / 4), "lanes": 1 + r.IntN(12),
		"chunk-bytes": 1000 + r.IntN(100_000), "chunk-records": 1 + r.IntN(60),
		"workers": 1 + r.IntN(6), "batch": 1 + r.IntN(5),
		"deal": []string{"interleaved", "interleaved", "contiguous"}[r.IntN(3)],
		"tail": []string{"keep", "keep", "drop", "pad"}[r.IntN(4)],
	}
}

// model computes the content of every file of a mount. It is safe for concurrent use.
type model struct {
	d   *dataset
	s   settings
	ref *reference.Process

	mu     sync.Mutex
	epochs map[uint64][]string // G of the epochs requested so far, as record IDs
}

// newReference starts the reference on a dataset, for the duration of the test.
func newReference(t *testing.T, d *dataset) *reference.Process {
	t.Helper()
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	p, err := reference.Start(python, "../reference", d.dir, environment(), d.flags)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func newModel(d *dataset, ref *reference.Process, s settings) *model {
	return &model{d: d, s: s, ref: ref, epochs: map[uint64][]string{}}
}

// order returns G of an epoch.
func (m *model) order(epoch uint64) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g, known := m.epochs[epoch]; known {
		return g, nil
	}
	question := map[string]any{"kind": "ids", "epoch": epoch}
	for name, value := range m.s {
		question[name] = value
	}
	question["workers"], question["batch"], question["deal"], question["tail"] = 1, 1, "interleaved", "keep"
	answer, err := m.ref.Ask(question)
	if err != nil {
		return nil, err
	}
	var g []string
	for ; len(answer) >= 16; answer = answer[16:] {
		g = append(g, string(answer[:16]))
	}
	if len(g) != len(m.d.records) {
		return nil, fmt.Errorf("the reference has %d records in epoch %d, and the dataset %d", len(g), epoch, len(m.d.records))
	}
	m.epochs[epoch] = g
	return g, nil
}

// entry is an entry of a checkpoint's done.
type entry struct {
	Batch    int    `json:"batch"`
	Deal     string `json:"deal,omitempty"`
	Consumed []int  `json:"consumed"`
}

// position is where worker files begin.
type position struct {
	epoch uint64
	done  []entry
}

// left returns what is left of an epoch.
func (m *model) left(p position) ([]string, error) {
	g, err := m.order(p.epoch)
	if err != nil {
		return nil, err
	}
	for _, e := range p.done {
		taken := slices.Clone(e.Consumed)
		var rest []string
		for at, id := range g {
			if w := owner(at, len(g), len(taken), e.Batch, e.Deal); taken[w] > 0 {
				taken[w]--
			} else {
				rest = append(rest, id)
			}
		}
		if slices.Max(taken) > 0 {
			return nil, fmt.Errorf("entry %+v takes more records than there are", e)
		}
		g = rest
	}
	return g, nil
}

// owner returns the worker that position at of n belongs to.
func owner(at, n, workers, batch int, deal string) int {
	if deal != "contiguous" {
		return at / batch % workers
	}
	long, most := n%workers, n/workers+1 // the first of them get one more
	if at < long*most {
		return at / most
	}
	return long + (at-long*most)/(most-1)
}

// stream returns the content of the file of worker w.
func (m *model) stream(p position, w, workers int) (*stream, error) {
	left, err := m.left(p)
	if err != nil {
		return nil, err
	}
	g, err := m.order(p.epoch)
	if err != nil {
		return nil, err
	}
	batch, deal := m.s.number("batch"), m.s.word("deal")
	unit := workers
	if deal != "contiguous" {
		unit *= batch
	}
	left = slices.Clone(left)
	switch over := len(left) % unit; {
	case over > 0 && m.s.word("tail") == "drop":
		left = left[:len(left)-over]
	case over > 0 && m.s.word("tail") == "pad":
		for at := 0; len(left)%unit > 0; at++ {
			left = append(left, g[at%len(g)])
		}
	}
	s := &stream{epilogue: m.d.epilogue}
	for at, id := range left {
		if owner(at, len(left), workers, batch, deal) == w {
			s.add(id, m.d.records[id])
		}
	}
	return s, nil
}

// stream is the content of a worker's file, as slices of the dataset.
type stream struct {
	ids      []string
	parts    [][]byte
	ends     []int64 // of parts
	epilogue []byte
}

func (s *stream) add(id string, record []byte) {
	s.ids, s.parts = append(s.ids, id), append(s.parts, record)
	s.ends = append(s.ends, s.records()+int64(len(record)))
}

// records returns the total size of the records in bytes.
func (s *stream) records() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

func (s *stream) size() int64 { return s.records() + int64(len(s.epilogue)) }

// whole returns how many records end within the first n bytes.
func (s *stream) whole(n int64) int {
	return sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > n })
}

// differs compares bytes that were read at off with the stream.
func (s *stream) differs(off int64, got []byte) error {
	if off+int64(len(got)) > s.size() {
		return fmt.Errorf("bytes [%d, %d) of a file of %d", off, off+int64(len(got)), s.size())
	}
	for at := off; len(got) > 0; {
		part, begin := s.epilogue, s.records()
		if i := s.whole(at); i < len(s.parts) {
			part, begin = s.parts[i], s.ends[i]-int64(len(s.parts[i]))
		}
		part = part[at-begin:]
		n := min(len(part), len(got))
		if !bytes.Equal(part[:n], got[:n]) {
			return fmt.Errorf("wrong bytes within [%d, %d): %.60q, want %.60q", at, at+int64(n), got[:n], part[:n])
		}
		at, got = at+int64(n), got[n:]
	}
	return nil
}

// beside returns the content of the stream's .ids or .offsets file.
func (s *stream) beside(ext string) []byte {
	var b []byte
	if ext == ".ids" {
		for _, id := range s.ids {
			b = append(b, id...)
		}
		return b
	}
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, end := range s.ends {
		b = binary.LittleEndian.AppendUint64(b, uint64(end))
	}
	return b
}

// readable is the expected content of a file.
type readable interface {
	size() int64
	differs(off int64, got []byte) error
}

// flat is a file whose bytes are in memory.
type flat []byte

func (f flat) size() int64 { return int64(len(f)) }

func (f flat) differs(off int64, got []byte) error {
	if !bytes.Equal(f[off:min(off+int64(len(got)), f.size())], got) {
		return fmt.Errorf("wrong bytes in [%d, %d)", off, off+int64(len(got)))
	}
	return nil
}

var _, _ readable = (*stream)(nil), flat(nil)

func TestModelDetectsWrongByte(t *testing.T) {
	s := &stream{epilogue: []byte("END")}
	s.add("1", []byte("abc"))
	s.add("2", nil)
	s.add("3", []byte("defgh"))
	require.EqualValues(t, 11, s.size())
	all := []byte("abcdefghEND")
	for off := range all {
		for end := off; end <= len(all); end++ {
			require.NoError(t, s.differs(int64(off), all[off:end]))
		}
		wrong := slices.Clone(all)
		wrong[off] ^= 1
		require.Error(t, s.differs(0, wrong))
	}
	require.Error(t, s.differs(0, append(all, 0)))
	require.Equal(t, []int{0, 0, 2, 2, 3}, []int{s.whole(0), s.whole(2), s.whole(3), s.whole(7), s.whole(8)})
}
