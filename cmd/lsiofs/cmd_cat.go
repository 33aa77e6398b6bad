package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

type catOptions struct {
	datasetFlags
	dataset      string
	share        shareValue
	from         uint64
	ids, offsets bool
}

func newCatCommand(g *globals) *cobra.Command {
	o := &catOptions{}
	c := &cobra.Command{
		Use:   "cat DATASET",
		Short: "Write a worker's stream to stdout, without a mount",
		Long: `Writes the file that a mount with the same flags would show as
epoch-E/from-M/worker-w-of-W (with --resume: as worker-w) to stdout: the same bytes,
without FUSE.`,
		Example: `  lsiofs cat /data/train --worker 0/4 --seed 42 | tar -t | head
  lsiofs cat /data/train --epoch 3 --from 20480 --worker 1/4 --offsets | od -t u8 | head
  lsiofs cat /data/train --resume ckpt.json --worker 2 > worker-2.tar`,
		Args: exactArgs("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = args[0]
			return runCat(c.Context(), o, g)
		},
	}
	o.add(c)
	o.addResume()
	f := c.Flags()
	f.Var(&o.share, "worker", "whose stream: w/W, or w of --workers")
	f.Uint64Var(&o.from, "from", 0, "take the epoch's first so many records off")
	f.BoolVar(&o.ids, "ids", false, "write the records' IDs instead, 16 bytes each")
	f.BoolVar(&o.offsets, "offsets", false, "write where records begin instead, little-endian uint64")
	return c
}

// kind is the file that the flags name.
func (o *catOptions) kind() (stream.Kind, error) {
	switch {
	case o.ids && o.offsets:
		return 0, usagef("--ids and --offsets are two files: choose one")
	case o.ids:
		return stream.IDs, nil
	case o.offsets:
		return stream.Offsets, nil
	}
	return stream.Data, nil
}

// resolveCat is resolve with the flags of cat on top.
func (o *catOptions) resolveCat() (s spec.Spec, r *resumption, err error) {
	if o.share.both {
		if o.given("workers") && o.spec.Deal.Workers != o.share.workers {
			return s, nil, usagef("--worker %s and --workers %d differ: leave one of them out", &o.share, o.spec.Deal.Workers)
		}
		// As if --workers had been given: a checkpoint has no say then.
		if err := o.flags.Set("workers", fmt.Sprint(o.share.workers)); err != nil {
			return s, nil, usagef("--worker: %w", err)
		}
	}
	if o.resume != "" && o.given("from") {
		return s, nil, usagef("--from and --resume both say where to begin: leave one of them out")
	}
	if s, r, err = o.resolve(o.dataset); err != nil {
		return s, r, err
	}
	if o.share.worker >= s.Deal.Workers {
		return s, r, usagef("--worker (%d) must be below the number of workers (%d)", o.share.worker, s.Deal.Workers)
	}
	return s, r, nil
}

func runCat(ctx context.Context, o *catOptions, g *globals) error {
	kind, err := o.kind()
	if err != nil {
		return err
	}
	s, resume, err := o.resolveCat()
	if err != nil {
		return err
	}
	if kind != stream.Data {
		s.Read = spec.ReadScan // no record is read: no spool
	}
	d, err := openShowing(ctx, g, s, false)
	if err != nil {
		return err
	}
	g.endAtOnce()
	return closeAfter(d, catStream(ctx, d, resume, o, kind, g.ui.out))
}

func catStream(ctx context.Context, d *pipeline.Dataset, resume *resumption, o *catOptions, kind stream.Kind, out io.Writer) error {
	position, err := o.position(d, resume)
	if err != nil {
		return err
	}
	set, err := d.Set(ctx, position.Epoch, position.Done, d.Spec().Deal)
	if err != nil {
		return coded(exitCheckpoint, err)
	}
	h := set.Open(o.share.worker, kind)
	defer h.Close()
	return copyStream(ctx, h, out)
}

func (o *catOptions) position(d *pipeline.Dataset, resume *resumption) (checkpoint.Position, error) {
	if resume != nil {
		return resume.position(d)
	}
	s := d.Spec()
	if o.from > d.Records() {
		return checkpoint.Position{}, usagef("--from (%d) must be at most the number of records (%d)", o.from, d.Records())
	}
	return checkpoint.Position{Epoch: s.Epoch, Done: prefix(s.Order, o.from)}, nil
}

// copyStream writes a stream from its first byte to its end.
func copyStream(ctx context.Context, h *stream.Handle, out io.Writer) error {
	w := newSliceWriter(out)
	var r stream.Reply
	for off := int64(0); ; {
		if err := h.ReadAt(ctx, &r, off, stream.MaxReadBytes); err != nil {
			return coded(exitDataset, err)
		}
		n := r.Len()
		err := w.write(r.Slices)
		r.Release()
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		off += int64(n)
	}
}
