package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// follower writes a worker's stream of a growing dataset, epoch after epoch, as one stream without
// the markers that end a file. If the first record of an epoch has the same key as the last one of
// the epoch before, it is renamed as within an epoch, as the record at position 0.
type follower struct {
	dataset *pipeline.Dataset
	worker  uint64
	kind    stream.Kind // Data or IDs
	out     io.Writer
	// waiting is called periodically while the next epoch can't start yet.
	waiting func(snapshot.Status)
	// progress, if not "", is a file that is kept up to date with the position up to which the
	// stream was written, in the short form of a checkpoint. With several workers only whole rounds
	// count.
	progress string

	epoch uint64
	base  uint64 // records of the epoch before the stream
	set   *stream.Set
	last  uint64 // the key hash of the last record written
	keyed bool
}

// check returns an error if the dataset can't be followed with these settings.
func (f *follower) check() error {
	if p, ok := f.dataset.Catalog().Unpacker().(format.Framer); ok && f.kind == stream.Data && len(p.Prologue(1)) > 0 {
		return exit.Usagef("--follow can't write npy, because its header holds the number of rows: mount the dataset, and read one epoch's files after another's")
	}
	d := f.dataset.Spec().Deal
	if f.progress != "" && d.Workers > 1 && d.Dealing == spec.DealContiguous {
		return exit.Usagef("--progress-file for several workers needs --deal interleaved: with --deal contiguous no single number describes the position of all of them")
	}
	return nil
}

// run writes from a position of the current epoch on until ctx ends or an error occurs. The
// progress file then covers what has been written.
func (f *follower) run(ctx context.Context, p checkpoint.Position) error {
	if err := f.check(); err != nil {
		return err
	}
	for {
		f.epoch, f.base = p.Epoch, 0
		for _, d := range p.Done {
			f.base += d.Taken()
		}
		if err := f.one(ctx, p.Done); err != nil {
			return err
		}
		next := p.Epoch + 1
		if err := f.dataset.BeginWaiting(ctx, next, f.waiting); err != nil {
			return exit.With(exit.Dataset, err)
		}
		p = checkpoint.Position{Epoch: next}
	}
}

// one writes one epoch.
func (f *follower) one(ctx context.Context, done []order.Done) (err error) {
	if f.set, err = f.dataset.Set(ctx, f.epoch, done, f.dataset.Spec().Deal); err != nil {
		return exit.With(exit.Checkpoint, err)
	}
	h := f.set.Open(f.worker, f.kind)
	defer h.Close()
	n := f.set.View().Count(f.worker)
	if err := f.mark(0); err != nil || n == 0 {
		return err
	}
	size, err := f.set.SizeBytes(ctx, f.worker, f.kind)
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	from := int64(0)
	if f.kind == stream.Data {
		if framer, ok := f.dataset.Catalog().Unpacker().(format.Framer); ok {
			size -= int64(len(framer.Epilogue(n)))
		}
		if from, err = f.first(ctx, h); err != nil {
			return err
		}
	}
	err = f.copy(ctx, h, from, size)
	f.keep(n)
	if from > 0 && n == 1 {
		f.keyed = false // the last record was renamed, so the next may have its key
	}
	return err
}

// keep stores the key hash of the epoch's last record.
func (f *follower) keep(n uint64) {
	var hash [1]uint64
	var record [1]uint64
	f.set.View().Records(f.worker, n-1, record[:])
	f.keyed = f.dataset.Catalog().KeyHashes(record[:], hash[:])
	f.last = hash[0]
}

// first writes the epoch's first record under another name if necessary, and returns where the
// second one begins. Otherwise it returns 0.
func (f *follower) first(ctx context.Context, h *stream.Handle) (int64, error) {
	c := f.dataset.Catalog()
	renamer, ok := c.Unpacker().(format.Renamer)
	if !ok || !f.keyed || f.last == 0 {
		return 0, nil
	}
	var record, hash [1]uint64
	f.set.View().Records(f.worker, 0, record[:])
	if !c.KeyHashes(record[:], hash[:]) || hash[0] != f.last {
		return 0, nil
	}
	o := f.set.Open(f.worker, stream.Offsets)
	defer o.Close()
	ends, err := readAll(ctx, o, 8, 16)
	if err != nil {
		return 0, exit.With(exit.Dataset, err)
	}
	end := int64(binary.LittleEndian.Uint64(ends))
	whole, err := readAll(ctx, h, 0, end)
	if err != nil {
		return 0, exit.With(exit.Dataset, err)
	}
	renamed, err := renamer.Rename(nil, whole, 0)
	if err != nil {
		return 0, exit.With(exit.Dataset, err)
	}
	return end, newSliceWriter(f.out).write([][]byte{renamed})
}

// readAll reads the bytes [from, to) of a file.
func readAll(ctx context.Context, h *stream.Handle, from, to int64) (all []byte, err error) {
	var r stream.Reply
	for from < to {
		if err := h.ReadAt(ctx, &r, from, int(min(to-from, stream.MaxReadBytes))); err != nil {
			return nil, err
		}
		if r.Len() == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		for _, s := range r.Slices {
			all, from = append(all, s...), from+int64(len(s))
		}
		r.Release()
	}
	return all, nil
}

// markEvery is the number of bytes written between two updates of the progress file.
const markEvery = 64 << 20

// copy writes the bytes [from, to) of a file.
func (f *follower) copy(ctx context.Context, h *stream.Handle, from, to int64) (err error) {
	w := newSliceWriter(f.out)
	var r stream.Reply
	marked := from
	defer func() { err = errors.Join(err, f.mark(from)) }()
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.ReadAt(ctx, &r, from, int(min(to-from, stream.MaxReadBytes))); err != nil {
			return exit.With(exit.Dataset, err)
		}
		n := r.Len()
		err := w.write(r.Slices)
		r.Release()
		if err != nil {
			return err
		}
		if from += int64(n); from-marked >= markEvery {
			marked = from
			if err := f.mark(from); err != nil {
				return err
			}
		}
	}
	return nil
}

// mark stores the stream's position, that many bytes into the epoch's file, in the progress file.
func (f *follower) mark(bytes int64) error {
	if f.progress == "" {
		return nil
	}
	k, err := f.set.WholeRecords(context.Background(), f.worker, f.kind, bytes)
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	view := f.set.View()
	deal, samples := view.Deal(), k
	if deal.Workers > 1 {
		samples = k / deal.Batch * deal.Batch * deal.Workers
		if k == view.Own(f.worker) {
			samples = view.Dealt()
		}
	}
	doc := fmt.Appendf(nil, "{\"epoch\": %d, \"samples\": %d}\n", f.epoch, f.base+min(samples, view.Remaining()))
	return checkpoint.WriteFile(f.progress, doc)
}
