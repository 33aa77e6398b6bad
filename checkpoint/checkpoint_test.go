package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const records = 1_234_567

func subject() Subject {
	o := spec.Default().Order
	o.Seed = 42
	return Subject{Dataset: strings.Repeat("ab", 32), Order: o, Records: records}
}

func state(done ...order.Done) State {
	s := subject()
	return State{Dataset: s.Dataset, Order: s.Order, Done: done}
}

func interleaved(batch uint64, consumed ...uint64) order.Done {
	return order.Done{Batch: batch, Dealing: spec.DealInterleaved, Consumed: consumed}
}

func contiguous(consumed ...uint64) order.Done {
	return order.Done{Batch: 1, Dealing: spec.DealContiguous, Consumed: consumed}
}

func fullDocument(done string) string {
	return `{"version": 1, "dataset": "` + subject().Dataset + `",
 "order": {"seed": 42, "shuffle": "reservoir", "size": 16384, "lanes": 32, "groups": 1, "batch": 1, "chunk_bytes": 262144, "chunk_records": 128},
 "epoch": 0, "done": [` + done + `]}
`
}

func TestMarshalWritesDesignedFormat(t *testing.T) {
	s := state(interleaved(1, 5120, 5119, 5120, 5118))
	require.Equal(t, fullDocument(`{"batch": 1, "consumed": [   5120,    5119,    5120,    5118]}`), string(s.Marshal(records)))
	s = state(interleaved(1, 100), contiguous(0, records))
	require.Equal(t, fullDocument(`{"batch": 1, "consumed": [    100]}, {"batch": 1, "deal": "contiguous", "consumed": [      0, 1234567]}`), string(s.Marshal(records)))
}

func TestOrderContainsSplitIfSet(t *testing.T) {
	part, err := spec.ParsePart("0.0..0.90")
	require.NoError(t, err)
	s := subject()
	s.Order.Split = spec.Split{Part: part, Seed: 7, By: spec.SplitByUnit}
	written := string(State{Dataset: s.Dataset, Order: s.Order, Done: []order.Done{interleaved(1, 9)}}.Marshal(records))
	require.Equal(t, strings.Replace(fullDocument(`{"batch": 1, "consumed": [      9]}`),
		`"chunk_records": 128}`, `"chunk_records": 128, "split": {"part": "0..0.9", "seed": 7, "by": "unit"}}`, 1), written)
	read, err := Parse([]byte(written))
	require.NoError(t, err)
	require.Equal(t, s.Order, read.Order)
	_, err = Resolve([]byte(written), s)
	require.NoError(t, err)

	for _, other := range []string{`"0..0.8", "seed": 7, "by": "unit"`, `"0..0.9", "seed": 8, "by": "unit"`, `"0..0.9", "seed": 7, "by": "shard"`} {
		doc := strings.Replace(written, `"0..0.9", "seed": 7, "by": "unit"`, other, 1)
		_, err = Resolve([]byte(doc), s)
		require.ErrorContains(t, err, `order.split is {"part": `+other+`} in the checkpoint and {"part": "0..0.9", "seed": 7, "by": "unit"} here`)
	}
	_, err = Resolve([]byte(written), subject())
	require.ErrorContains(t, err, `in the checkpoint and the whole dataset here`)
	// The same part in other decimals; and a part that is the whole dataset.
	_, err = Resolve([]byte(strings.Replace(written, "0..0.9", "0.0..0.900", 1)), s)
	require.NoError(t, err)
	_, err = Resolve([]byte(strings.Replace(written, "0..0.9", "0..1.0", 1)), subject())
	require.NoError(t, err)
	for i := range written {
		require.NoError(t, Possible([]byte(written[:i])))
	}
}

func TestSizeDoesNotDependOnCounts(t *testing.T) {
	want := len(state(interleaved(8, 0, 0, 0)).Marshal(records))
	for _, n := range []uint64{1, 9, 10, 99999, records} {
		require.Len(t, state(interleaved(8, n, 0, n)).Marshal(records), want)
	}
}

func TestShortForms(t *testing.T) {
	for doc, want := range map[string]Position{
		`{"epoch": 3}`:                    {Epoch: 3},
		`{"epoch":18446744073709551615}`:  {Epoch: 1<<64 - 1},
		" {\n\"epoch\"\t:\r3 } \n\n":      {Epoch: 3},
		`{"epoch": 3, "samples": 0}`:      {Epoch: 3},
		`{"samples": 20480, "epoch": 3}`:  {Epoch: 3, Done: []order.Done{interleaved(1, 20480)}},
		`{"epoch": 3, "samples":1234567}`: {Epoch: 3, Done: []order.Done{interleaved(1, records)}},
	} {
		got, err := Resolve([]byte(doc), subject())
		require.NoError(t, err, doc)
		require.Equal(t, want, got, doc)
		require.NoError(t, Possible([]byte(doc)))
		_, err = Parse([]byte(doc))
		require.ErrorContains(t, err, "the full form is needed")
	}
}

func TestShortFormWithGroupsUsesBatchOfOrder(t *testing.T) {
	s := subject()
	s.Order.Groups, s.Order.Batch = 4, 64
	p, err := Resolve([]byte(`{"epoch": 1, "samples": 640}`), s)
	require.NoError(t, err)
	require.Equal(t, []order.Done{interleaved(64, 640)}, p.Done)
}

func TestResolveReturnsCanonicalForm(t *testing.T) {
	for done, want := range map[string][]order.Done{
		``:                                 nil,
		`{"batch": 1, "consumed": [0, 0]}`: nil,
		`{"batch": 1, "consumed": [3, 2]}`: {interleaved(1, 5)},
		`{"batch": 1, "consumed": [5]}, {"batch": 8, "deal": "interleaved", "consumed": [8, 8, 4]}, {"batch": 1, "consumed": [0]}`: {interleaved(1, 25)},
		`{"batch": 1, "consumed": [5, 3]}`:                                                                                    {interleaved(1, 5, 3)},
		`{"consumed": [5,3], "batch": 2}, {"batch": 1, "consumed": [1]}`:                                                      {interleaved(2, 5, 3), interleaved(1, 1)},
		`{"deal": "contiguous", "batch": 1, "consumed": [5, 3]}`:                                                              {contiguous(5, 3)},
		`{"deal": "contiguous", "batch": 1, "consumed": [617284, 0]}, {"batch": 1, "deal": "contiguous", "consumed": [1, 0]}`: {interleaved(1, 617285)},
	} {
		p, err := Resolve([]byte(fullDocument(done)), subject())
		require.NoError(t, err, done)
		require.Equal(t, want, p.Done, done)
	}
}

// refusals are documents with the text that the refusal must contain.
var refusals = map[string]string{
	"\xef\xbb\xbf{\"epoch\": 1}":                        "byte order mark",
	`[]`:                                                `expected {, not "["`,
	`null`:                                              `expected {, not "null"`,
	`{}`:                                                `lacks epoch`,
	`{"epoch": 1,}`:                                     `must be a string, not "}"`,
	`{"epoch": 1 "samples": 2}`:                         `expected , or }, not "\"samples\":"`,
	`{epoch: 1}`:                                        `must be a string, not "epoch:"`,
	`{"epoch" 1}`:                                       `after the name epoch: expected :, not "1"`,
	`{"Epoch": 1}`:                                      `("Epoch") must be one of version, dataset, run, order, epoch, done, samples`,
	`{"epoch": 1, "note": "x"}`:                         `("note") must be one of`,
	`{"ep\u006fch": 1}`:                                 `plain ASCII without escapes`,
	"{\"epo\xffch\": 1}":                                `plain ASCII without escapes`,
	`{"epoch": 1, "epoch": 1}`:                          `the field "epoch" twice`,
	`{"epoch": -1}`:                                     `epoch (-1) must be a whole number between 0 and 18446744073709551615`,
	`{"epoch": 1.0}`:                                    `epoch (1.0) must be a whole number`,
	`{"epoch": 1e3}`:                                    `epoch (1e3) must be a whole number`,
	`{"epoch": 01}`:                                     `epoch (01) must be a whole number`,
	`{"epoch": +1}`:                                     `epoch (+1) must be a whole number`,
	`{"epoch": 18446744073709551616}`:                   `epoch (18446744073709551616) must be a whole number between`,
	`{"epoch": "1"}`:                                    `epoch ("1") must be a whole number`,
	`{"epoch": null}`:                                   `epoch (null) must be a whole number`,
	`{"epoch": [[[[[[`:                                  `epoch ([[[[[[) must be a whole number`,
	`{"epoch": 1} x`:                                    `text after the document: "x"`,
	`{"epoch": 1}{"epoch": 1}`:                          `text after the document`,
	"{\"epoch\": 1}\x00":                                `text after the document`,
	`{"epoch": 1, "samples": 1234568}`:                  `samples (1234568) must be at most 1234567`,
	`{"samples": 1}`:                                    `lacks epoch`,
	`{"version": 1, "epoch": 1}`:                        `lacks dataset, order, done`,
	`{"version": 1, "samples": 1`:                       `samples belongs to the short form`,
	`{"epoch": 1, "samples": 1, "done": []}`:            `samples belongs to the short form`,
	`{"version": 2`:                                     `version is 2, but this lsiofs reads version 1: use the release that wrote the document`,
	`{"version": 0}`:                                    `version is 0, but this`,
	`{"dataset": 5}`:                                    `dataset must be a string, not "5"`,
	`{"dataset": "` + strings.Repeat("x", 400):          `dataset is longer than 256 bytes`,
	`{"order": {"seed": 1}}`:                            `order lacks shuffle, size, lanes, groups, batch, chunk_bytes, chunk_records`,
	`{"order": {"shuffle": "best"}}`:                    `order.shuffle ("best") must be one of reservoir, block, full, none`,
	`{"order": {"split": {}}}`:                          `order.split lacks part, seed, by`,
	`{"order": {"split": "0..0.9"}}`:                    `order.split: expected {`,
	`{"order": {"split": {"part": "0.9..0.1"`:           `the first fraction must be below the second`,
	`{"order": {"split": {"part": "0..1.5"`:             `write two fractions between 0 and 1`,
	`{"order": {"split": {"seed": -1`:                   `order.split.seed (-1) must be`,
	`{"order": {"split": {"by": "game"`:                 `order.split.by ("game") must be one of record, shard, unit`,
	`{"order": {"seed": 1, "seed": 1}}`:                 `order has the field "seed" twice`,
	`{"done": {}}`:                                      `done: expected [, not "{"`,
	`{"done": [5]}`:                                     `done[0]: expected {, not "5"`,
	`{"done": [{"batch": 0}]}`:                          `done[0].batch (0) must be a whole number between 1`,
	`{"done": [{"batch": 1}]}`:                          `done[0] lacks consumed`,
	`{"done": [{"consumed": [1]}]}`:                     `done[0] lacks batch`,
	`{"done": [{"deal": "fair"}]}`:                      `done[0].deal ("fair") must be one of interleaved, contiguous`,
	`{"done": [{"consumed": []}]}`:                      `done[0].consumed must have one number per worker`,
	`{"done": [{"consumed": [1,]}]}`:                    `done[0].consumed (]) must be a whole number`,
	`{"done": [{"consumed": [1 2]}]}`:                   `expected , or ], not "2"`,
	`{"done": [{"consumed": [140737488355329]}]}`:       `done[0].consumed (140737488355329) must be a whole number between 0 and 140737488355328`,
	fullDocument(`{"batch": 1, "consumed": [1234568]}`): `entry 1 of done: worker 0 of 1 took 1234568 records, but was dealt 1234567`,
	fullDocument(`{"batch": 4, "deal": "contiguous", "consumed": [1]}`):                                   `batch (4) must be 1 with the deal contiguous`,
	fullDocument(`{"batch": 1, "consumed": [1000000]}, {"batch": 1, "consumed": [0, 0, 100000, 100000]}`): `entry 2 of done: worker 2 of 4 took 100000 records, but was dealt 58642`,
}

func TestRefusalsNameFieldValueAndBound(t *testing.T) {
	for doc, words := range refusals {
		_, err := Resolve([]byte(doc), subject())
		require.ErrorContains(t, err, words, doc)
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal, doc)
		require.NotErrorIs(t, err, ErrIncomplete, doc)
		require.Contains(t, err.Error(), "checkpoint refused: ")
	}
}

// Everything that can be checked without a dataset is found while a document arrives, and what was
// impossible once stays impossible.
func TestPossibleDetectsErrorsThatMoreBytesCannotFix(t *testing.T) {
	judged := 0
	for doc, words := range refusals {
		if strings.HasPrefix(doc, `{"version": 1, "dataset"`) || strings.Contains(doc, "1234568") {
			require.NoError(t, Possible([]byte(doc)), doc)
			judged++
			continue
		}
		require.ErrorContains(t, Possible([]byte(doc)), words, doc)
		require.Error(t, Possible([]byte(doc+` "epoch": 1}`)), doc)
	}
	require.Equal(t, 4, judged)
}

func TestDocumentPrefixesArePossible(t *testing.T) {
	for _, doc := range []string{
		fullDocument(`{"batch": 1, "consumed": [   5120,    5119]}, {"batch": 1, "deal": "contiguous", "consumed": [1, 2]}`),
		" {\n\"epoch\"\t:\r3 , \"samples\": 10 } \n\n",
	} {
		end := strings.LastIndex(doc, "}") + 1
		for n := range len(doc) + 1 {
			require.NoError(t, Possible([]byte(doc[:n])), doc[:n])
			_, err := Resolve([]byte(doc[:n]), subject())
			if n < end {
				require.ErrorIs(t, err, ErrIncomplete, doc[:n])
			} else {
				require.NoError(t, err)
			}
		}
	}
	for _, doc := range []string{`{"epoch": x`, `{"foo`, `{"epochs`, `{"epoch": 1e`, `{"order": {"shuffle": "reserved`, `{"epoch": 184467440737095516150`} {
		require.Error(t, Possible([]byte(doc)), doc)
	}
}

func TestOtherDatasetIsRefusedWithAdvice(t *testing.T) {
	doc := state(interleaved(1, 20000), interleaved(1, 240, 240)).Marshal(records)
	s := subject()
	s.Dataset = strings.Repeat("cd", 32)
	_, err := Resolve(doc, s)
	require.ErrorContains(t, err, `from another dataset: its fingerprint is "abab`)
	require.ErrorContains(t, err, `restore {"epoch": 0, "samples": 20480}`)
	s.Records = 7
	s.Explain = func(fingerprint string) string {
		require.Equal(t, strings.Repeat("ab", 32), fingerprint)
		return "b.tar has 7 records here"
	}
	_, err = Resolve(doc, s)
	require.ErrorContains(t, err, "(b.tar has 7 records here)")
	require.ErrorContains(t, err, `restore {"epoch": 0, "samples": 7}`)
}

func TestOrderMismatchErrorNamesEveryField(t *testing.T) {
	for _, f := range orderNumbers {
		s := subject()
		*f.of(&s.Order) += 7
		_, err := Resolve([]byte(fullDocument("")), s)
		require.ErrorContains(t, err, fmt.Sprintf("order.%s is %d in the checkpoint and %d here", f.name, *f.of(&s.Order)-7, *f.of(&s.Order)))
	}
	s := subject()
	s.Order.Shuffle, s.Order.Seed = spec.ShuffleBlock, 1
	_, err := Resolve([]byte(fullDocument("")), s)
	require.ErrorContains(t, err, "order.shuffle is reservoir in the checkpoint and block here, order.seed is 42 in the checkpoint and 1 here")
}

func TestLimits(t *testing.T) {
	tooLarge := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, ErrTooLarge)
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
	}
	long := []byte(`{"epoch": 1}` + strings.Repeat(" ", MaxBytes))
	tooLarge(Possible(long))
	require.NoError(t, Possible(long[:MaxBytes]))
	_, err := Parse(long)
	tooLarge(err)

	ragged := make([]order.Done, MaxEntries)
	for i := range ragged {
		ragged[i] = interleaved(1, 1, 0, 1)
	}
	_, err = Parse(state(ragged...).Marshal(records))
	require.NoError(t, err)
	_, err = Resolve(state(ragged...).Marshal(records), subject())
	tooLarge(err) // no room for the mount's own entry
	p, err := Resolve(state(ragged[1:]...).Marshal(records), subject())
	require.NoError(t, err)
	require.Len(t, p.Done, MaxEntries-1)
	tooLarge(Possible(state(append(ragged, ragged[0])...).Marshal(records)))

	wide := interleaved(1, make([]uint64, spec.MaxWorkers)...)
	wide.Consumed[1] = 1
	s := subject()
	doc := state(wide, wide, wide).Marshal(records)
	s.Deal.Workers = spec.MaxWorkers
	_, err = Resolve(doc, s)
	require.NoError(t, err)
	many := make([]order.Done, 28)
	for i := range many {
		many[i] = wide
	}
	doc = state(many...).Marshal(1)
	require.Less(t, len(doc), MaxBytes)
	_, err = Resolve(doc, s) // aligned to T it is larger than it was
	tooLarge(err)
	_, err = Parse([]byte(`{"done": [{"consumed": [` + strings.Repeat("0,", spec.MaxWorkers) + `0]}]}`))
	require.ErrorContains(t, err, "more than 65536 numbers")
}

func TestMergeTakesMaximaOfLastEntry(t *testing.T) {
	base := interleaved(1, 7, 3)
	a, b := state(base, interleaved(1, 5, 0, 2, 9)), state(base, interleaved(1, 0, 6, 3, 1))
	got, err := Merge([]State{a, b, a})
	require.NoError(t, err)
	require.Equal(t, state(base, interleaved(1, 5, 6, 3, 9)), got)
	require.Equal(t, []uint64{5, 0, 2, 9}, a.Done[1].Consumed, "the input is as it was")

	_, err = Merge(nil)
	require.ErrorContains(t, err, "nothing to merge")
	_, err = Merge([]State{state()})
	require.ErrorContains(t, err, "done has no entry")
	for words, change := range map[string]func(*State){
		`dataset is "abab`:                          func(s *State) { s.Dataset = "x" },
		"order.lanes is 32 in the first and 33":     func(s *State) { s.Order.Lanes++ },
		"epoch is 0 in the first and 1 in this one": func(s *State) { s.Epoch++ },
		"done has 2 entries in the first and 1":     func(s *State) { s.Done = s.Done[:1] },
		"done[0]: consumed differs":                 func(s *State) { s.Done[0] = interleaved(1, 7, 2) },
		"done[1]: batch is 1 in the first and 2":    func(s *State) { s.Done[1].Batch = 2 },
		"done[1]: deal is interleaved":              func(s *State) { s.Done[1].Dealing = spec.DealContiguous },
		"done[1]: there are 4 workers":              func(s *State) { s.Done[1].Consumed = []uint64{1} },
		"document 2 can't be merged with docum":     func(s *State) { s.Epoch++ },
	} {
		other := state(base, interleaved(1, 0, 6, 3, 1))
		change(&other)
		_, err := Merge([]State{a, other})
		require.ErrorContains(t, err, words)
	}
}

func drawState(t *rapid.T) (Subject, State) {
	s := subject()
	s.Order.Seed = rapid.Uint64().Draw(t, "seed")
	s.Records = rapid.Uint64Range(1, 3000).Draw(t, "records")
	p := Position{Epoch: rapid.Uint64().Draw(t, "epoch")}
	live := State{}
	for range rapid.IntRange(1, 4).Draw(t, "mounts") {
		d := spec.Assignment{
			Workers: rapid.Uint64Range(1, 9).Draw(t, "workers"),
			Batch:   rapid.Uint64Range(1, 9).Draw(t, "batch"),
			Dealing: rapid.SampledFrom([]spec.Dealing{spec.DealInterleaved, spec.DealContiguous}).Draw(t, "dealing"),
			Tail:    rapid.SampledFrom([]spec.Tail{spec.TailKeep, spec.TailDrop, spec.TailPad}).Draw(t, "tail"),
		}
		starts := []uint64{0, s.Records}
		e, err := order.NewEpoch(s.Order, p.Epoch, starts, nil)
		require.NoError(t, err)
		v, err := order.NewView(e, p.Done, d)
		require.NoError(t, err)
		consumed := make([]uint64, d.Workers)
		for w := range consumed {
			consumed[w] = rapid.Uint64Range(0, v.Own(uint64(w))).Draw(t, "consumed")
		}
		live = Live(s, p, d, consumed)
		p, err = Resolve(live.Marshal(s.Records), s)
		require.NoError(t, err)
	}
	return s, live
}

// The document that a mount writes is read back by it, or by another mount.
func TestEveryMountStateRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, live := drawState(t)
		doc := live.Marshal(s.Records)
		require.True(t, json.Valid(doc))
		back, err := Parse(doc)
		require.NoError(t, err)
		require.Equal(t, live, back)
		p, err := Resolve(doc, s)
		require.NoError(t, err)
		want, err := order.Simplify(s.Records, s.Order, live.Done)
		require.NoError(t, err)
		require.Equal(t, Position{Epoch: live.Epoch, Done: want}, p)
	})
}

func TestRefusalUnwraps(t *testing.T) {
	_, err := Parse(nil)
	require.True(t, errors.Is(err, ErrIncomplete))
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFileReplacesFileAndLeavesNoOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	require.NoError(t, os.WriteFile(path, []byte("a longer text that was there"), 0o644))
	require.NoError(t, WriteFile(path, []byte("new\n")))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new\n", string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Equal(t, []string{"c.json"}, namesIn(t, dir))
}

func TestWriteFileDoesNotFollowLinks(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "c.json")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o644))
	require.NoError(t, os.Symlink(victim, path))
	require.NoError(t, WriteFile(path, []byte("new")))
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
}

func TestFailedWriteFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 300)) // longer than any file name
	require.ErrorContains(t, WriteFile(long, []byte("new")), long)
	require.Empty(t, namesIn(t, dir))

	path := filepath.Join(dir, "c.json")
	require.NoError(t, os.Mkdir(path, 0o755))
	require.ErrorContains(t, WriteFile(path, []byte("new")), path+": it is a directory; name a file")
	require.Equal(t, []string{"c.json"}, namesIn(t, dir))

	missing := filepath.Join(dir, "no", "c.json")
	require.ErrorIs(t, WriteFile(missing, nil), os.ErrNotExist)
}

func TestWriteFileAcceptsRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, WriteFile("c.json", []byte("new")))
	require.Equal(t, []string{"c.json"}, namesIn(t, "."))
}

// /dev/stdout is a link: replacing it would take away every program's output.
func TestWriteFileDoesNotReplaceLinkToNonFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	require.NoError(t, os.Symlink("/dev/null", path))
	require.ErrorContains(t, WriteFile(path, []byte("new")), "not a regular file")
	target, err := os.Readlink(path)
	require.NoError(t, err)
	require.Equal(t, "/dev/null", target)
}

var (
	thisRun  = strings.Repeat("3f", 16)
	otherRun = strings.Repeat("a0", 16)
)

func TestOtherRunsAndOtherSnapshotsAreRefused(t *testing.T) {
	static := subject()
	grows := static
	grows.Run = thisRun
	asked := false
	grows.At = func(epoch uint64) (string, uint64, error) {
		asked = true
		if epoch == 7 {
			return static.Dataset, static.Records, nil
		}
		return strings.Repeat("cd", 32), static.Records, nil
	}
	state := State{Dataset: static.Dataset, Run: thisRun, Order: static.Order, Epoch: 7, Done: []order.Done{interleaved(1, 9, 8)}}
	written := string(state.Marshal(records))
	require.Contains(t, written, `", "run": "`+thisRun+"\",\n \"order\": ")
	read, err := Parse([]byte(written))
	require.NoError(t, err)
	require.Equal(t, state, read)
	p, err := Resolve([]byte(written), grows)
	require.NoError(t, err)
	require.EqualValues(t, 7, p.Epoch)
	for i := range written {
		require.NoError(t, Possible([]byte(written[:i])))
	}

	refused := func(doc string, s Subject, why ...string) {
		t.Helper()
		asked = false
		_, err := Resolve([]byte(doc), s)
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		for _, words := range why {
			require.ErrorContains(t, err, words)
		}
	}
	refused(written, static, "it is from run "+thisRun+" of a growing dataset", "mount with --grow")
	other := state
	other.Run = otherRun
	refused(string(other.Marshal(records)), grows, "it is from run "+otherRun, "--run", `restore {"epoch": 7, "samples": 17}`)
	require.False(t, asked, "the epochs of another run are none of ours")
	without := state
	without.Run = ""
	refused(string(without.Marshal(records)), grows, "does not grow", "without --grow")
	later := state
	later.Epoch = 8
	refused(string(later.Marshal(records)), grows, "epoch 8 of this run has another snapshot")
	for bad, why := range map[string]string{`"3f"`: `run ("3f") must be 32 hexadecimal digits`, `""`: "must be 32", `7`: "run", `"` + strings.Repeat("3F", 16) + `"`: "lower case"} {
		refused(strings.Replace(written, `"`+thisRun+`"`, bad, 1), grows, why)
	}
	refused(`{"epoch": 3, "run": "`+thisRun+`"}`, grows, "lacks")

	_, err = Merge([]State{state, other})
	require.ErrorContains(t, err, "run is "+thisRun+" in the first and "+otherRun+" in this one")
	_, err = Merge([]State{state, without})
	require.ErrorContains(t, err, "and none in this one")
	merged, err := Merge([]State{state, state})
	require.NoError(t, err)
	require.Equal(t, state, merged)
	require.Equal(t, thisRun, Live(grows, Position{Epoch: 7}, spec.Assignment{Workers: 2, Batch: 1}, []uint64{1, 2}).Run)
}
