package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Golden documents: testdata/golden/<version>-<name>.json is a document that lsiofs, or a person,
// wrote when that version was the newest, and .said next to it is what was read from it then.
//
// A new version adds files: raise Version, add its new features to goldenStates, run
//
//	go test ./checkpoint -run Golden -update
//
// and commit the new files. Existing files are never changed or removed, and -update does not touch
// them: users keep documents like these next to their models, and they must keep their meaning
// forever.
const goldenDir = "testdata/golden"

var update = flag.Bool("update", false, "write the golden documents that are missing")

// goldenStates are the states that documents of each version are written from.
func goldenStates(t *testing.T) map[string]State {
	part, err := spec.ParsePart("0.1..0.95")
	require.NoError(t, err)
	s := subject()
	with := func(o spec.Order, epoch uint64, done ...order.Done) State {
		return State{Dataset: s.Dataset, Order: o, Epoch: epoch, Done: done}
	}
	grouped, split, full, sampled := s.Order, s.Order, s.Order, s.Order
	grouped.Groups, grouped.Batch, grouped.Lanes = 4, 8, 64
	split.Split = spec.Split{Part: part, Seed: math.MaxUint64, By: spec.SplitByUnit}
	sampled.Split, sampled.Sample = split.Split, spec.Subsample{Of: 39, Seed: 7}
	full.Shuffle, full.Seed, full.SizeRecords, full.ChunkBytes = spec.ShuffleFull, math.MaxUint64, 0, 1
	return map[string]State{
		"start":   with(s.Order, 0, interleaved(1, 0)),
		"resumes": with(s.Order, 7, interleaved(1, 5120, 5119, 5120, 5118), interleaved(32, 64, 0), contiguous(0, 1000), interleaved(1, 3, 0, 0)),
		"groups":  with(grouped, 1, interleaved(8, 80, 72)),
		"split":   with(split, 2, interleaved(1, 9)),
		"sampled": with(sampled, 41, interleaved(1, 9)),
		"run":     {Dataset: s.Dataset, Run: strings.Repeat("3f", 16), Order: sampled, Epoch: 7, Done: []order.Done{interleaved(1, 9)}},
		"full":    with(full, math.MaxUint64, interleaved(1, 1)),
	}
}

// goldenByHand are documents as written by people and other programs.
var goldenByHand = map[string]string{
	"epoch":       `{"epoch": 3}`,
	"samples":     "{\n\t\"samples\": 20480,\r\n\t\"epoch\": 3\n}\n\n",
	"other-order": `{"done":[{"consumed":[1,2],"batch":1}],"epoch":5,"order":{"chunk_records":128,"chunk_bytes":262144,"batch":1,"groups":1,"lanes":32,"size":16384,"shuffle":"reservoir","seed":42},"dataset":"` + strings.Repeat("ab", 32) + `","version":1}`,
	"deal-told":   fullDocument(`{"batch": 1, "deal": "interleaved", "consumed": [1,2]}`),
}

// saidOf returns the meaning of a document as text, independent of how it is written. New fields
// are shown only if they have a value, so that existing files stay as they are.
func saidOf(t *testing.T, doc []byte) string {
	d, err := read(doc)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d\n", d.state.Epoch)
	if !d.full() {
		fmt.Fprintf(&b, "samples %d\n", d.samples)
		return b.String()
	}
	o := d.state.Order
	fmt.Fprintf(&b, "dataset %s\nseed %d\nshuffle %s\nsize %d\nlanes %d\ngroups %d\nbatch %d\nchunk bytes %d\nchunk records %d\n",
		d.state.Dataset, o.Seed, o.Shuffle, o.SizeRecords, o.Lanes, o.Groups, o.Batch, o.ChunkBytes, o.ChunkRecords)
	if d.state.Run != "" {
		fmt.Fprintf(&b, "run %s\n", d.state.Run)
	}
	if o.Split != (spec.Split{}) {
		fmt.Fprintf(&b, "split %s, seed %d, by %s\n", o.Split.Part, o.Split.Seed, o.Split.By)
	}
	if o.Sample != (spec.Subsample{}) {
		fmt.Fprintf(&b, "sample %s, seed %d\n", o.Sample, o.Sample.Seed)
	}
	for _, done := range d.state.Done {
		fmt.Fprintf(&b, "done %v, batch %d, %s\n", done.Consumed, done.Batch, done.Dealing)
	}
	return b.String()
}

func writeGolden(t *testing.T) {
	docs := map[string][]byte{}
	for name, s := range goldenStates(t) {
		docs["written-"+name] = s.Marshal(records)
	}
	for name, text := range goldenByHand {
		docs["by-hand-"+name] = []byte(text)
	}
	require.NoError(t, os.MkdirAll(goldenDir, 0o755))
	for name, doc := range docs {
		path := filepath.Join(goldenDir, fmt.Sprintf("%d-%s", Version, name))
		if _, err := os.Stat(path + ".json"); err == nil {
			continue
		}
		require.NoError(t, os.WriteFile(path+".json", doc, 0o644))
		require.NoError(t, os.WriteFile(path+".said", []byte(saidOf(t, doc)), 0o644))
	}
}

// TestGoldenDocumentsOfAllVersionsMeanWhatTheyMeant reads each document; those of this version must
// also be written the same way again.
func TestGoldenDocumentsOfAllVersionsMeanWhatTheyMeant(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	paths, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	require.NoError(t, err)
	for name := range goldenStates(t) {
		require.Contains(t, paths, filepath.Join(goldenDir, fmt.Sprintf("%d-written-%s.json", Version, name)), "of this version, see above")
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			doc, err := os.ReadFile(path)
			require.NoError(t, err)
			want, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".said")
			require.NoError(t, err)
			require.Equal(t, string(want), saidOf(t, doc))
			if strings.HasPrefix(filepath.Base(path), fmt.Sprintf("%d-written-", Version)) {
				s, err := Parse(doc)
				require.NoError(t, err)
				require.Equal(t, string(doc), string(s.Marshal(records)))
			}
		})
	}
}

// FuzzDocument checks that parsing never panics; accepted documents are JSON and round-trip; every
// prefix of them is possible; whatever is impossible stays so with more bytes.
func FuzzDocument(f *testing.F) {
	for doc := range refusals {
		f.Add([]byte(doc), uint16(5))
	}
	f.Add([]byte(`{"epoch": 3, "samples": 20480}`), uint16(12))
	f.Add([]byte(fullDocument(`{"batch": 1, "consumed": [   5120,    5119]}, {"batch": 1, "deal": "contiguous", "consumed": [1, 2]}`)), uint16(300))
	f.Fuzz(func(t *testing.T, doc []byte, cut uint16) {
		s := subject()
		p, err := Resolve(doc, s)
		possible := Possible(doc)
		prefix := doc[:min(int(cut), len(doc))]
		if possible == nil {
			require.NoError(t, Possible(prefix))
		}
		if Possible(prefix) != nil {
			require.Error(t, possible)
		}
		if errors.Is(err, ErrIncomplete) {
			require.NoError(t, possible)
			require.False(t, json.Valid(doc))
		}
		state, parseErr := Parse(doc)
		if parseErr == nil {
			require.True(t, json.Valid(doc))
			again, err := Parse(state.Marshal(s.Records))
			require.NoError(t, err)
			require.Equal(t, state, again)
		}
		if err != nil {
			return
		}
		require.NoError(t, possible)
		require.True(t, json.Valid(bytes.TrimSpace(doc)))
		written := State{Dataset: s.Dataset, Order: s.Order, Epoch: p.Epoch, Done: p.Done}.Marshal(s.Records)
		again, err := Resolve(written, s)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

// BenchmarkPossible checks a document of about the maximum size, 16 MiB, as the control file does
// after every write.
func BenchmarkPossible(b *testing.B) {
	many := make([]order.Done, 100)
	for i := range many {
		many[i] = interleaved(1, make([]uint64, 10_000)...)
	}
	doc := state(many...).Marshal(records)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Possible(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	s := state(interleaved(1, make([]uint64, 65536)...))
	b.SetBytes(int64(len(s.Marshal(records))))
	b.ReportAllocs()
	for b.Loop() {
		s.Marshal(records)
	}
}
