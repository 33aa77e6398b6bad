package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Marshal returns the document. Numbers in consumed are right-aligned to the digits of records, so
// states that differ only in those numbers have documents of the same size. The result ends with a
// newline.
func (s State) Marshal(records uint64) []byte {
	width := digits(records)
	doc := make([]byte, 0, 512+sizeOf(s.Done, width))
	doc = append(doc, `{"version": `...)
	doc = strconv.AppendInt(doc, Version, 10)
	doc = append(doc, `, "dataset": `...)
	doc = appendText(doc, s.Dataset)
	if s.Run != "" {
		doc = append(doc, `, "run": `...)
		doc = appendText(doc, s.Run)
	}
	doc = append(doc, ",\n \"order\": "...)
	doc = appendOrder(doc, s.Order)
	doc = append(doc, ",\n \"epoch\": "...)
	doc = strconv.AppendUint(doc, s.Epoch, 10)
	doc = append(doc, `, "done": [`...)
	for i, d := range s.Done {
		if i > 0 {
			doc = append(doc, ", "...)
		}
		doc = appendDone(doc, d, width)
	}
	return append(doc, "]}\n"...)
}

func appendOrder(doc []byte, o spec.Order) []byte {
	doc = append(doc, `{"seed": `...)
	doc = strconv.AppendUint(doc, o.Seed, 10)
	doc = append(doc, `, "shuffle": `...)
	doc = appendText(doc, string(o.Shuffle))
	for _, f := range orderNumbers[1:] {
		doc = append(doc, `, "`...)
		doc = append(doc, f.name...)
		doc = append(doc, `": `...)
		doc = strconv.AppendUint(doc, *f.of(&o), 10)
	}
	if o.Split != (spec.Split{}) {
		doc = append(doc, `, "split": `...)
		doc = appendSplit(doc, o.Split)
	}
	if o.Length > 0 {
		doc = append(doc, `, "length": `...)
		doc = strconv.AppendUint(doc, o.Length, 10)
	}
	if o.Sample != (spec.Subsample{}) {
		doc = append(doc, `, "sample": `...)
		doc = appendSample(doc, o.Sample)
	}
	return append(doc, '}')
}

func appendDone(doc []byte, d order.Done, width int) []byte {
	doc = append(doc, `{"batch": `...)
	doc = strconv.AppendUint(doc, d.Batch, 10)
	if d.Dealing != "" && d.Dealing != spec.DealInterleaved {
		doc = append(doc, `, "deal": `...)
		doc = appendText(doc, string(d.Dealing))
	}
	doc = append(doc, `, "consumed": [`...)
	for w, n := range d.Consumed {
		if w > 0 {
			doc = append(doc, ", "...)
		}
		for pad := width - digits(n); pad > 0; pad-- {
			doc = append(doc, ' ')
		}
		doc = strconv.AppendUint(doc, n, 10)
	}
	return append(doc, "]}"...)
}

// appendText appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendText(doc []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be marshalled
	}
	return append(doc, quoted...)
}

// sizeOf returns the maximum size in bytes of a list of entries.
func sizeOf(done []order.Done, width int) int {
	size := 0
	for _, d := range done {
		size += entryBytes + len(d.Consumed)*(width+len(", "))
	}
	return size
}

// entryBytes is the maximum size of an entry without its numbers: `{"batch": <15 digits>, "deal":
// "contiguous", "consumed": []}, `.
const entryBytes = 80

func digits(n uint64) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}

// Merge combines the states of several mounts of a cluster. They must agree in dataset, run, order,
// epoch and all entries but the last. From the last entries it takes the maximum for each worker,
// because each mount knows what its own workers took, and has 0 for the others. The result shares
// only the entries before the last with states. Errors number the states from 1.
func Merge(states []State) (State, error) {
	if len(states) == 0 {
		return State{}, errors.New("checkpoint: nothing to merge")
	}
	merged := states[0]
	last := len(merged.Done) - 1
	if last < 0 {
		return State{}, &MergeError{1, errors.New("done has no entry, so there are no worker counts to merge")}
	}
	merged.Done = slices.Clone(merged.Done)
	merged.Done[last].Consumed = slices.Clone(merged.Done[last].Consumed)
	for i, s := range states[1:] {
		if err := agree(merged, s); err != nil {
			return State{}, &MergeError{i + 2, err}
		}
		for w, n := range s.Done[last].Consumed {
			merged.Done[last].Consumed[w] = max(merged.Done[last].Consumed[w], n)
		}
	}
	return merged, nil
}

// MergeError is the error for a document that can't be merged with the first one. Number is the
// document's, counted from 1.
type MergeError struct {
	Number int
	Err    error
}

func (e *MergeError) Error() string {
	if e.Number == 1 {
		return fmt.Sprintf("document 1 can't be merged with others: %v", e.Err)
	}
	return fmt.Sprintf("document %d can't be merged with document 1: %v", e.Number, e.Err)
}

func (e *MergeError) Unwrap() error { return e.Err }

// agree returns an error that describes a difference between a and b that prevents merging.
func agree(a, b State) error {
	if a.Dataset != b.Dataset {
		return fmt.Errorf("dataset is %q in the first and %q in this one", a.Dataset, b.Dataset)
	}
	if a.Run != b.Run {
		return fmt.Errorf("run is %s in the first and %s in this one", runWords(a.Run), runWords(b.Run))
	}
	if words := differences(a.Order, b.Order, "in the first", "in this one"); words != "" {
		return errors.New(words)
	}
	if a.Epoch != b.Epoch {
		return fmt.Errorf("epoch is %d in the first and %d in this one", a.Epoch, b.Epoch)
	}
	if len(a.Done) != len(b.Done) {
		return fmt.Errorf("done has %d entries in the first and %d in this one: they were resumed from different places", len(a.Done), len(b.Done))
	}
	last := len(a.Done) - 1
	for i := range a.Done {
		if err := agreeEntry(a.Done[i], b.Done[i], i == last); err != nil {
			return fmt.Errorf("done[%d]: %w", i, err)
		}
	}
	return nil
}

func agreeEntry(a, b order.Done, last bool) error {
	switch {
	case a.Batch != b.Batch:
		return fmt.Errorf("batch is %d in the first and %d in this one", a.Batch, b.Batch)
	case a.Dealing != b.Dealing:
		return fmt.Errorf("deal is %s in the first and %s in this one", a.Dealing, b.Dealing)
	case len(a.Consumed) != len(b.Consumed):
		return fmt.Errorf("there are %d workers in the first and %d in this one", len(a.Consumed), len(b.Consumed))
	case !last && !slices.Equal(a.Consumed, b.Consumed):
		return errors.New("consumed differs: they were resumed from different places")
	}
	return nil
}

func runWords(run string) string {
	if run == "" {
		return "none"
	}
	return run
}
