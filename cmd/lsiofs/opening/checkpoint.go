package opening

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Checkpoint is a checkpoint to resume from.
type Checkpoint struct {
	Path string
	Doc  []byte
	// State is the full form; nil for a short form, which has no order.
	State *checkpoint.State
	Short Short
}

// Short is the short form, which a training loop may write by hand.
type Short struct {
	Epoch   *uint64 `json:"epoch"`
	Samples *uint64 `json:"samples"`
}

// Stdin is the FILE that means standard input.
const Stdin = "-"

// ReadCheckpoint reads a checkpoint of either form. Position checks its contents against the dataset
// later.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	doc, err := ReadDocument(path)
	if err != nil {
		return nil, err
	}
	r := &Checkpoint{Path: path, Doc: doc}
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) == nil && fields["version"] == nil && fields["dataset"] == nil && fields["order"] == nil && fields["done"] == nil {
		if err := checkpoint.Possible(doc); err != nil {
			return nil, exit.Errorf(exit.Checkpoint, "%s: %w", path, err)
		}
		// The document is complete, and Possible has checked it strictly.
		return r, exit.With(exit.Checkpoint, json.Unmarshal(doc, &r.Short))
	}
	state, err := checkpoint.Parse(doc)
	if err != nil {
		return nil, exit.Errorf(exit.Checkpoint, "%s: %w", path, err)
	}
	r.State = &state
	return r, nil
}

// ReadDocument reads a file that may be a checkpoint, or standard input, up to the maximum size of
// a checkpoint. It returns an error if the file is empty, as a full disk may leave it.
func ReadDocument(path string) ([]byte, error) {
	f := os.Stdin
	if path != Stdin {
		var err error
		if f, err = os.Open(path); err != nil {
			return nil, unread(path, err)
		}
		defer f.Close()
	}
	name := path
	if path == Stdin {
		name = "standard input"
	}
	doc, err := io.ReadAll(io.LimitReader(f, checkpoint.MaxBytes+1))
	switch {
	case err != nil:
		return nil, unread(path, err)
	case len(doc) > checkpoint.MaxBytes:
		return nil, exit.Errorf(exit.Checkpoint, "%s is not a checkpoint: it exceeds the limit of %d bytes", name, checkpoint.MaxBytes)
	case len(doc) == 0:
		return nil, exit.Errorf(exit.Checkpoint, "%s holds no checkpoint: it is empty; was the disk full when it was saved?", name)
	case len(bytes.Trim(doc, " \t\r\n\x00\ufeff")) == 0:
		return nil, exit.Errorf(exit.Checkpoint, "%s holds no checkpoint, only %d bytes of white space or zeros; was the disk full when it was saved?", name, len(doc))
	}
	return doc, nil
}

// unread returns the error for a checkpoint that could not be read.
func unread(path string, err error) error {
	if cause := (*os.PathError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	return exit.Errorf(exit.Checkpoint, "checkpoint %s: %w: name a file that holds a saved checkpoint", path, err)
}

// Apply sets the checkpoint's order in s and, unless their flags were given, the workers, batch and
// deal of its last entry. It returns an error that lists all flags of the order that were given and
// differ.
func (r *Checkpoint) Apply(s spec.Spec, given func(flag string) bool) (spec.Spec, error) {
	var problems []error
	differs := func(flag string, flagValue, fileValue any) {
		if given(flag) && flagValue != fileValue {
			problems = append(problems, fmt.Errorf("--%s (%v) differs from %s, which has %v: an epoch can only continue in its own order, so leave the flag out",
				flag, flagValue, r.Path, fileValue))
		}
	}
	if r.State == nil {
		differs("epoch", s.Epoch, *r.Short.Epoch)
		s.Epoch = *r.Short.Epoch
		return s, exit.Join(exit.Usage, problems)
	}
	o := r.State.Order
	differs("seed", s.Order.Seed, o.Seed)
	differs("shuffle", s.Order.Shuffle, o.Shuffle)
	differs("shuffle-size", s.Order.SizeRecords, o.SizeRecords)
	differs("lanes", s.Order.Lanes, o.Lanes)
	differs("groups", s.Order.Groups, o.Groups)
	differs("chunk-bytes", s.Order.ChunkBytes, o.ChunkBytes)
	differs("chunk-records", s.Order.ChunkRecords, o.ChunkRecords)
	split := s.Order.Split.Or()
	differs("split", split.Part, o.Split.Part)
	differs("split-seed", split.Seed, o.Split.Seed)
	differs("split-by", split.By, o.Split.By)
	sample := s.Order.Sample.Or()
	differs("sample", sample.String(), o.Sample.String())
	differs("sample-seed", sample.Seed, o.Sample.Seed)
	if given("mix-length") && s.Order.Length != o.Length {
		problems = append(problems, fmt.Errorf("--mix-length differs from %s, whose epochs have %d records: an epoch can only continue in its own order, so leave the flag out", r.Path, o.Length))
	}
	differs("epoch", s.Epoch, r.State.Epoch)
	s.Order, s.Epoch = o, r.State.Epoch

	if n := len(r.State.Done); n > 0 {
		last := r.State.Done[n-1]
		if !given("workers") {
			s.Deal.Workers = uint64(len(last.Consumed))
		}
		if !given("batch") {
			s.Deal.Batch = last.Batch
		}
		if !given("deal") && last.Dealing != "" {
			s.Deal.Dealing = last.Dealing
		}
	}
	if o.Groups > 1 {
		differs("batch", s.Deal.Batch, o.Batch)
		s.Deal.Batch = o.Batch
	}
	return s, exit.Join(exit.Usage, problems)
}

// BringsOrder reports whether the order is the checkpoint's.
func (r *Checkpoint) BringsOrder() bool { return r != nil && r.State != nil }

// Position checks the checkpoint against an open dataset and returns its position. If r is nil, it
// returns the start of the spec's epoch.
func (r *Checkpoint) Position(d *pipeline.Dataset) (checkpoint.Position, error) {
	s := d.Spec()
	if r == nil {
		return checkpoint.Position{Epoch: s.Epoch}, nil
	}
	p, err := checkpoint.Resolve(r.Doc, checkpoint.Subject{
		Dataset: d.Fingerprint(), Run: d.Run(), Order: s.Order, Records: d.Records(), Deal: s.Deal, Explain: d.Explain,
		At: func(epoch uint64) (string, uint64, error) {
			fingerprint, err := d.EpochFingerprint(context.Background(), epoch)
			if err != nil {
				return "", 0, err
			}
			records, err := d.EpochRecords(context.Background(), epoch)
			return fingerprint, records, err
		},
	})
	if err != nil {
		return p, exit.Errorf(exit.Checkpoint, "%s: %w", r.Path, err)
	}
	return p, nil
}

// Prefix returns the resume entries after n records of G, as directories named from-N have it.
func Prefix(o spec.Order, n uint64) []order.Done {
	if n == 0 {
		return nil
	}
	return []order.Done{order.First(n, o)}
}
