package checkpoint

import (
	"fmt"
	"math"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Resolve parses a document of any form and checks it against s. The error is a *Refusal with the
// reason why the document can't be restored.
func Resolve(doc []byte, s Subject) (Position, error) {
	d, err := read(doc)
	if err != nil {
		return Position{}, err
	}
	if d.full() { // before calling At: another run has other epochs
		if err := s.judgeRun(d.state); err != nil {
			return Position{}, err
		}
	}
	if s, err = s.at(d.state.Epoch); err != nil {
		return Position{}, err
	}
	if !d.full() {
		return s.short(d)
	}
	return s.judge(d.state)
}

// at returns the subject for an epoch.
func (s Subject) at(epoch uint64) (Subject, error) {
	if s.At == nil {
		return s, nil
	}
	var err error
	if s.Dataset, s.Records, err = s.At(epoch); err != nil {
		return s, &Refusal{Reason: err.Error(), cause: err}
	}
	return s, nil
}

// judgeRun rejects a document of another run.
func (s Subject) judgeRun(state State) error {
	switch {
	case state.Run == s.Run:
		return nil
	case s.Run == "":
		return &Refusal{Reason: fmt.Sprintf("it is from run %s of a growing dataset, but this mount's dataset does not grow: mount with --grow and name the run's directory with --run", state.Run)}
	case state.Run == "":
		return &Refusal{Reason: fmt.Sprintf("it is from a dataset that does not grow, but this mount is of run %s: mount without --grow, or restore %s", s.Run, state.short())}
	}
	return &Refusal{Reason: fmt.Sprintf("it is from run %s, but this mount is of run %s: name its run directory with --run, or restore %s", state.Run, s.Run, state.short())}
}

// short returns the short form for about the same position.
func (s State) short() string {
	taken := uint64(0)
	for _, d := range s.Done {
		for _, n := range d.Consumed {
			taken = min(order.MaxRecords, taken+min(n, order.MaxRecords))
		}
	}
	return fmt.Sprintf(`{"epoch": %d, "samples": %d}`, s.Epoch, taken)
}

// short resolves a short form.
func (s Subject) short(d *document) (Position, error) {
	taken, possible := s.Samples(d.samples)
	if !possible {
		return Position{}, &Refusal{Reason: fmt.Sprintf("samples (%d) must be at most %d, the records of an epoch", d.samples, s.Records)}
	}
	return s.Position(d.state.Epoch, taken, false), nil
}

// judge resolves a full form.
func (s Subject) judge(state State) (Position, error) {
	if state.Dataset != s.Dataset {
		return Position{}, s.foreign(state)
	}
	if words := differences(state.Order, s.Order, "in the checkpoint", "here"); words != "" {
		return Position{}, &Refusal{Reason: "it is from another order: " + words +
			"; mount with the checkpoint's settings (--resume takes them from the file), or restore " + s.nearby(state) + " to continue with the settings of this mount"}
	}
	done, err := order.Simplify(s.Records, s.Order, state.Done)
	if err != nil {
		return Position{}, &Refusal{Reason: err.Error()}
	}
	if err := s.fits(done); err != nil {
		return Position{}, err
	}
	return Position{Epoch: state.Epoch, Done: done}, nil
}

// foreign returns the refusal of a document of another dataset.
func (s Subject) foreign(state State) error {
	if s.Run != "" {
		return &Refusal{Reason: fmt.Sprintf("epoch %d of this run has another snapshot: its fingerprint is %q, the checkpoint's is %q; to continue from about the same place, restore %s",
			state.Epoch, s.Dataset, state.Dataset, s.nearby(state))}
	}
	reason := fmt.Sprintf("it is from another dataset: its fingerprint is %q, this dataset's is %q", state.Dataset, s.Dataset)
	if s.Explain != nil {
		if words := s.Explain(state.Dataset); words != "" {
			reason += " (" + words + ")"
		}
	}
	return &Refusal{Reason: reason + "; to continue from about the same place, restore " + s.nearby(state)}
}

// nearby returns the short form for about the same position as state.
func (s Subject) nearby(state State) string {
	taken := uint64(0)
	for _, d := range state.Done {
		for _, n := range d.Consumed {
			taken = min(s.Records, taken+min(n, s.Records))
		}
	}
	return fmt.Sprintf(`{"epoch": %d, "samples": %d}`, state.Epoch, taken)
}

// fits returns an error if the mount's own document, with its own entry after done, would exceed
// the limits.
func (s Subject) fits(done []order.Done) error {
	if len(done)+1 > MaxEntries {
		return &Refusal{
			Reason: fmt.Sprintf("done has %d entries of at most %d, no room for this mount's: finish the epoch, or start from the short form with samples", len(done), MaxEntries),
			cause:  ErrTooLarge,
		}
	}
	const head = 2048 // for everything before done, with room to spare
	width := digits(s.Records)
	size := head + sizeOf(done, width) + entryBytes + int(s.Deal.Workers)*(width+len(", "))
	if size > MaxBytes {
		return &Refusal{
			Reason: fmt.Sprintf("with this mount's entry it would have up to %d bytes, more than the limit of %d: finish the epoch, or start from the short form with samples", size, MaxBytes),
			cause:  ErrTooLarge,
		}
	}
	return nil
}

// differences returns text with the fields in which two orders differ, and both values; "" if there
// are none.
func differences(a, b spec.Order, of, other string) string {
	var words []string
	add := func(name string, x, y any) {
		words = append(words, fmt.Sprintf("order.%s is %v %s and %v %s", name, x, of, y, other))
	}
	if a.Shuffle != b.Shuffle {
		add("shuffle", a.Shuffle, b.Shuffle)
	}
	for _, f := range orderNumbers {
		if x, y := *f.of(&a), *f.of(&b); x != y {
			add(f.name, x, y)
		}
	}
	if a.Split != b.Split {
		add("split", splitWords(a.Split), splitWords(b.Split))
	}
	if a.Length != b.Length {
		add("length", a.Length, b.Length)
	}
	if a.Sample != b.Sample {
		add("sample", sampleWords(a.Sample), sampleWords(b.Sample))
	}
	return strings.Join(words, ", ")
}

// Samples returns how many records of an epoch are consumed when a training loop has counted the
// given number of samples. It returns false for a number that no loop can reach.
//
// A loop that counts steps × batch × workers counts more than the records at the end of an epoch
// whose last batches are padded or not full (tail pad and keep): by less than one batch per worker.
// Any number of workers up to spec.MaxWorkers may read below epoch-N, even more than there are
// batches. Such a count means the end of the epoch: all records.
func (s Subject) Samples(samples uint64) (records uint64, possible bool) {
	if samples <= s.Records {
		return samples, true
	}
	if s.Deal.Tail == spec.TailDrop || s.Deal.Tail == "" {
		return 0, false
	}
	round := max(s.Deal.Batch, 1) * spec.MaxWorkers // at most 2⁴⁸
	return s.Records, samples-s.Records < round
}

// Position returns where training continues after the first taken records of an epoch. After all
// records that is the start of the next epoch, if that has begun; otherwise the end of this one.
func (s Subject) Position(epoch, taken uint64, nextHasBegun bool) Position {
	switch {
	case taken == 0:
		return Position{Epoch: epoch}
	case taken == s.Records && nextHasBegun && epoch < math.MaxUint64:
		return Position{Epoch: epoch + 1}
	}
	return Position{Epoch: epoch, Done: []order.Done{order.First(taken, s.Order)}}
}
