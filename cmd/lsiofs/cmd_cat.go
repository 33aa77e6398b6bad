package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

type catOptions struct {
	streamFlags
	dataset      string
	ids, offsets bool
	origins      bool
	follow       bool
	progress     string
}

func newCatCommand(g *globals) *cobra.Command {
	o := &catOptions{}
	c := &cobra.Command{
		Use:   "cat DATASET",
		Short: "Write a worker's stream to stdout, without a mount",
		Long: `Writes a worker's stream to stdout, without FUSE. The bytes are those of the file
epoch-E/from-M/worker-w-of-W (with --resume: worker-w) in a mount with the same flags.

With --grow and --follow, it continues with the next epochs, as one stream without
end-of-archive markers in between. Before each of these epochs it waits for as much new
data as --min-new requires, by default one new shard. Ctrl-C ends it.`,
		Example: `  lsiofs cat /data/train --worker 0/4 --seed 42 | tar -t | head
  lsiofs cat /data/train --epoch 3 --from 20480 --worker 1/4 --offsets | od -t u8 | head
  lsiofs cat /data/train --resume ckpt.json --worker 2 > worker-2.tar
  lsiofs cat /data/games --grow --run /shared/run --worker 0/4 --follow | train`,
		Args: o.arguments("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = o.withDataset(args)[0]
			return runCat(c.Context(), o, g)
		},
	}
	o.add(c)
	o.addMix(c)
	o.addGrow(c)
	f := c.Flags()
	f.BoolVar(&o.ids, "ids", false, "write the records' IDs instead of the records, 16 bytes each")
	f.BoolVar(&o.offsets, "offsets", false, "write the offsets at which records begin instead of the records, as little-endian uint64")
	f.BoolVar(&o.origins, "origins", false, "format zarr: write where crops were cut from instead of the crops: an npy array with one row per crop: cube, row, origin")
	f.BoolVar(&o.follow, "follow", false, "with --grow: continue with the next epochs, and wait for them")
	f.StringVar(&o.progress, "progress-file", "", "with --follow: record how much of the stream has been written in this `file`, as a short-form checkpoint for --resume")
	return c
}

// followsNew is the default of --min-new with --follow. Without it, the same shards would be
// written again and again while nothing arrives.
const followsNew = "1shards"

// kind returns the kind of file that the flags select.
func (o *catOptions) kind() (stream.Kind, error) {
	switch {
	case o.follow && !o.spec.Grow.On:
		return 0, exit.Usagef("--follow continues with the next epochs of a growing dataset: add --grow, or leave --follow out")
	case o.follow && o.offsets:
		return 0, exit.Usagef("--follow can't be combined with --offsets, which count from 0 again in each epoch: leave one of them out")
	case !o.follow && o.progress != "":
		return 0, exit.Usagef("--progress-file needs --follow: add it, or leave --progress-file out")
	case o.ids && o.offsets:
		return 0, exit.Usagef("--ids and --offsets can't be written together: choose one of them")
	case o.origins && (o.ids || o.offsets):
		return 0, exit.Usagef("--origins, --ids and --offsets can't be written together: choose one of them")
	case o.origins && o.spec.Format.Name != "zarr":
		return 0, exit.Usagef("--origins writes where crops were cut from: add --format zarr, or leave --origins out")
	case o.origins:
		return stream.Crops, nil
	case o.ids:
		return stream.IDs, nil
	case o.offsets:
		return stream.Offsets, nil
	}
	return stream.Data, nil
}

func runCat(ctx context.Context, o *catOptions, g *globals) error {
	kind, err := o.kind()
	if err != nil {
		return err
	}
	s, resume, err := o.resolveStream(o.dataset)
	if err != nil {
		return err
	}
	if o.progress != "" && resume.BringsOrder() {
		return exit.Usagef("--progress-file stores a short form, which can't describe the position of %s: resume from a short form, or leave --progress-file out", o.resume)
	}
	if o.follow && !o.given("min-new") {
		s.Grow.MinNew = followsNew
	}
	d, err := opening.OpenShowing(ctx, g.ui, g.log(), s, pipeline.Options{StartFetcher: kind == stream.Data})
	if err != nil {
		return err
	}
	if o.follow {
		return opening.Close(d, followStream(ctx, d, resume, o, kind, g.ui), g.log())
	}
	g.endAtOnce()
	return opening.Close(d, catStream(ctx, d, resume, o, kind, g.ui), g.log())
}

func catStream(ctx context.Context, d *pipeline.Dataset, resume *opening.Checkpoint, o *catOptions, kind stream.Kind, u *terminal.UI) error {
	position, err := o.position(d, resume)
	if err != nil {
		return err
	}
	set, err := d.Set(ctx, position.Epoch, position.Done, d.Spec().Deal)
	if err != nil {
		return exit.With(exit.Checkpoint, err)
	}
	if set.View().Count(o.share.worker) == 0 {
		records, err := d.EpochRecords(ctx, position.Epoch)
		if err != nil {
			return err
		}
		if records == 0 {
			u.Warn(opening.NothingSelected(d, position.Epoch, "the stream is empty"))
		}
	}
	h := set.Open(o.share.worker, kind)
	defer h.Close()
	return copyStream(ctx, h, u.Out)
}

// followStream writes the streams of successive epochs. A signal ends it between two writes.
func followStream(ctx context.Context, d *pipeline.Dataset, resume *opening.Checkpoint, o *catOptions, kind stream.Kind, u *terminal.UI) error {
	position, err := o.position(d, resume)
	if err != nil {
		return err
	}
	w := opening.NewWaiting(u)
	defer w.Clear()
	f := follower{
		dataset: d, worker: o.share.worker, kind: kind, out: u.Out, progress: o.progress,
		waiting: func(s snapshot.Status) { w.Show(opening.WaitingFor(s)) },
	}
	return f.run(ctx, position)
}

// copyStream writes a stream from its first byte to its end.
func copyStream(ctx context.Context, h *stream.Handle, out io.Writer) error {
	w := newSliceWriter(out)
	var r stream.Reply
	for off := int64(0); ; {
		if err := h.ReadAt(ctx, &r, off, stream.MaxReadBytes); err != nil {
			return exit.With(exit.Dataset, err)
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

// sliceWriter writes vectors of slices: to a file with writev, without copying, otherwise slice by
// slice. It is not safe for concurrent use.
type sliceWriter struct {
	out  io.Writer
	conn syscall.RawConn // nil: out is not a file
	rest [][]byte        // reused
}

func newSliceWriter(out io.Writer) *sliceWriter {
	w := &sliceWriter{out: out}
	if f, ok := out.(*os.File); ok {
		// An error means a closed file, which the first write reports.
		w.conn, _ = f.SyscallConn()
	}
	return w
}

// write writes all slices. If the reader has gone away, the error has the code exit.Pipe.
func (w *sliceWriter) write(slices [][]byte) error {
	var err error
	if w.conn == nil {
		for _, s := range slices {
			if _, err = w.out.Write(s); err != nil {
				break
			}
		}
	} else {
		err = w.writev(slices)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE):
		return exit.With(exit.Pipe, exit.ErrSilent)
	}
	return fmt.Errorf("write to stdout: %w", err)
}

func (w *sliceWriter) writev(slices [][]byte) error {
	w.rest = append(w.rest[:0], slices...)
	rest := w.rest
	for len(rest) > 0 {
		var n int
		var werr error
		err := w.conn.Write(func(fd uintptr) bool {
			n, werr = unix.Writev(int(fd), rest)
			return werr != unix.EAGAIN // wait until it is writable
		})
		if err != nil {
			return err
		}
		if werr == unix.EINTR {
			continue
		}
		if werr != nil {
			return werr
		}
		rest = advance(rest, n)
	}
	return nil
}

// advance drops the first n bytes and the slices that are then empty.
func advance(slices [][]byte, n int) [][]byte {
	for len(slices) > 0 && n >= len(slices[0]) {
		n -= len(slices[0])
		slices = slices[1:]
	}
	if n > 0 {
		slices[0] = slices[0][n:]
	}
	return slices
}
