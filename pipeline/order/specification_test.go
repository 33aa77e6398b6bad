package order

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// specified is a random configuration, in a form that encoding/json writes for specifiedProgram,
// and this package's results for it.
type specified struct {
	Order          spec.Order
	Epoch          uint64
	Chunks         []uint64 // number of records of each
	Shards         []specifiedShard
	Low, High      string // bounds of a split
	Done           []specifiedEntry
	Deal           spec.Assignment
	Weights        []uint64
	SourceChunks   [][]uint64 // of a mixture, by source
	Begin, Records uint64     // the positions of a mixture

	streams [][]uint64
	g       [][2]uint64 // of a mixture: source and the record in it
}

type specifiedShard struct {
	Path    string
	Entries []bool
}

type specifiedEntry struct {
	Batch    uint64   `json:"batch"`
	Deal     string   `json:"deal"`
	Consumed []uint64 `json:"consumed"`
}

// specifiedProgram reads configurations, one per line, and prints the results of the
// specification's program.
const specifiedProgram = `
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "../../integration/reference")
import order

def lists(lengths):
    numbers = iter(range(sum(lengths)))
    return [[next(numbers) for _ in range(n)] for n in lengths]

def g(c, o, seed, epoch, whole):
    batch = o["Batch"]
    return order.global_order(whole, seed, epoch, o["Shuffle"], o["SizeRecords"], o["Lanes"], o["Groups"], batch)

def mixture(c, o):
    positions, epochs = order.mixture_positions(c["Weights"], o["Seed"], c["Begin"], c["Begin"] + c["Records"]), {}
    result = []
    for m, i in positions:
        epoch, at = divmod(i, sum(c["SourceChunks"][m]))
        if (m, epoch) not in epochs:
            epochs[m, epoch] = g(c, o, order.source_seed(o["Seed"], m), epoch, lists(c["SourceChunks"][m]))
        result.append([m, epochs[m, epoch][at]])
    return result

def streams(c, o):
    whole = lists(c["Chunks"])
    if c["Shards"]:
        shards = [(s["Path"].encode(), s["Entries"]) for s in c["Shards"]]
        units = order.units([entries for _, entries in shards], o["Split"]["By"])
        records = [(path, ordinal) for path, entries in shards for ordinal in range(len(entries))]
        whole = order.select(whole, [
            order.in_part(path, unit, o["Split"]["Seed"], c["Low"], c["High"])
            and order.phase(path, ordinal, o["Sample"]["Seed"], o["Sample"]["Of"]) == c["Epoch"] % o["Sample"]["Of"]
            for (path, ordinal), unit in zip(records, units)])
    d = c["Deal"]
    return order.streams(g(c, o, o["Seed"], c["Epoch"], whole), c["Done"] or [], d["Workers"], d["Batch"], d["Dealing"], d["Tail"])

order.example()
for line in sys.stdin:
    c = json.loads(line)
    print(json.dumps((mixture if c["Weights"] else streams)(c, c["Order"])))
`

// specifyWorkers draws resumes and the assignment of the remainder.
func specifyWorkers(t *rapid.T) specified {
	s := drawSettings(t)
	done, _ := s.drawDone(t)
	x := specified{Order: s.order, Epoch: s.epoch, Chunks: s.chunks, Deal: s.drawDeal(t)}
	for _, d := range done {
		x.Done = append(x.Done, specifiedEntry{d.Batch, string(d.Dealing), d.Consumed})
	}
	x.assign(t, s.newEpoch(t), done)
	return x
}

// assign sets the expected streams.
func (x *specified) assign(t *rapid.T, e *Epoch, done []Done) {
	v, err := NewView(e, done, x.Deal)
	require.NoError(t, err)
	for w := range x.Deal.Workers {
		records := make([]uint64, v.Count(w))
		v.Records(w, 0, records)
		x.streams = append(x.streams, records)
	}
}

// specifySelection draws a split and a sample.
func specifySelection(t *rapid.T) specified {
	o := drawSettings(t).order
	shards, chunks := drawShards(t)
	p := drawPart(t)
	o.Split = spec.Split{Part: p, Seed: rapid.Uint64().Draw(t, "split's seed"), By: rapid.SampledFrom(units3).Draw(t, "by")}
	o.Sample = spec.Subsample{Of: rapid.Uint64Range(2, 5).Draw(t, "n"), Seed: rapid.Uint64().Draw(t, "sample's seed")}
	x := specified{
		Order: o, Epoch: rapid.Uint64().Draw(t, "epoch"), Chunks: chunks,
		Deal: spec.Assignment{Workers: 1, Batch: o.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep},
		Low:  decimal(p.From), High: decimal(p.To),
	}
	for _, s := range shards {
		x.Shards = append(x.Shards, specifiedShard{s.path, append([]bool{}, s.entries...)})
	}
	selected, err := NewPart(o, x.Epoch, listedShards(shards), inTurn)
	require.NoError(t, err)
	e, err := NewEpoch(o, x.Epoch, selected.Starts(startsOf(chunks)), selected)
	require.NoError(t, err)
	x.assign(t, e, nil)
	return x
}

// decimal formats a number of billionths as a decimal fraction.
func decimal(billionths uint32) string {
	digits := []byte("0.000000000")
	digits[0] += byte(billionths / 1_000_000_000)
	for i, n := len(digits)-1, billionths; i > 1; i, n = i-1, n/10 {
		digits[i] += byte(n % 10)
	}
	return string(digits)
}

// specifyMixture draws sources, weights and an epoch of a mixture.
func specifyMixture(t *rapid.T) specified {
	x := specified{Order: drawSettings(t).order, Weights: drawWeights(t), Records: rapid.Uint64Range(1, 900).Draw(t, "length")}
	var sources []Source
	first := []uint64{0}
	for m := range x.Weights {
		c := rapid.SliceOfN(rapid.Uint64Range(1, 30), 1, 6).Draw(t, "chunks")
		x.SourceChunks = append(x.SourceChunks, c)
		sources = append(sources, Source{First: first[m], Starts: startsOf(c)})
		first = append(first, first[m]+sources[m].records())
	}
	epoch := rapid.Uint64Range(0, 1<<40).Draw(t, "epoch")
	x.Begin = epoch * x.Records
	m, err := NewMixture(x.Order, sharesOf(t, x.Order.Seed, x.Weights), sources, x.Records)
	require.NoError(t, err)
	e, err := m.Epoch(epoch)
	require.NoError(t, err)
	for _, record := range allOf(e) {
		m := 0
		for record >= first[m+1] {
			m++
		}
		x.g = append(x.g, [2]uint64{uint64(m), record - first[m]})
	}
	return x
}

// TestTheProgramOfThePagesGivesTheSameOrder runs the program in ORDER.md, SELECTION.md and
// STREAMS.md on random configurations from a fixed seed. The published results are checked by a
// test in package integration.
func TestTheProgramOfThePagesGivesTheSameOrder(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("python3 is not installed")
	}
	require.NoError(t, err)
	var cases []specified
	for i := range 30 {
		for _, draw := range []func(*rapid.T) specified{specifyWorkers, specifySelection, specifyMixture} {
			cases = append(cases, rapid.Custom(draw).Example(i))
		}
	}
	var questions, problems bytes.Buffer
	for _, c := range cases {
		require.NoError(t, json.NewEncoder(&questions).Encode(c))
	}
	cmd := exec.Command(python, "-c", specifiedProgram)
	cmd.Stdin, cmd.Stderr = &questions, &problems
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &problems)
	answers := json.NewDecoder(bytes.NewReader(out))
	for i, c := range cases {
		text, err := json.Marshal(c)
		require.NoError(t, err)
		if c.Weights != nil {
			var got [][2]uint64
			require.NoError(t, answers.Decode(&got))
			require.Equal(t, c.g, got, "case %d: %s", i, text)
			continue
		}
		var got [][]uint64
		require.NoError(t, answers.Decode(&got))
		require.Equal(t, c.streams, got, "case %d: %s", i, text)
	}
}
