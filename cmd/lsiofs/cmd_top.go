package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

type topOptions struct {
	point string
	once  bool
}

func newTopCommand(g *globals) *cobra.Command {
	o := &topOptions{}
	c := &cobra.Command{
		Use:   "top MNT",
		Short: "Show live what a mount's readers wait for, and how far they are",
		Long: `Shows, once a second, what the readers of MNT wait for (in words, and by stage),
how far each stream is and when it ends, memory, and what went wrong. On a
terminal it is redrawn until q or Ctrl-C; elsewhere it is a line a second. It reads
MNT/status.json and nothing else.

A stage's share is of the readers' time: what is left is theirs, and then the
loader is not the bottleneck. Its bar is the last minute's.`,
		Example: `  lsiofs top /mnt/train
  lsiofs top /mnt/train --once
  lsiofs top /mnt/train --json | head -60 > minute.jsonl`,
		// What people try first.
		SuggestFor: []string{"status", "stat", "watch"},
		Args:       exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.point = args[0]
			return runTop(c.Context(), o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.once, "once", false, "draw one frame, a second from now, and end")
	return c
}

const (
	topEvery = time.Second
	// topPatience is how long status may take to come before that is said.
	topPatience = 3 * time.Second
	// topRateSeconds is over how much of the past rates of streams are.
	topRateSeconds = 10
	// onceWidth is the width of a frame where there is no terminal.
	onceWidth = 80
)

func runTop(ctx context.Context, o *topOptions, u *terminal.UI) error {
	w := newWatch(o.point)
	first := w.look(ctx)
	if first.err != nil {
		return w.failed(first.err)
	}
	out, isFile := u.Out.(*os.File)
	switch {
	case o.once:
		return topOnce(ctx, w, u)
	case u.JSON:
		return topLines(ctx, w, func(f frame) error { return u.Emit(f.line()) })
	case isFile && term.IsTerminal(int(out.Fd())):
		return topScreen(ctx, w)
	}
	return topLines(ctx, w, func(f frame) error { return printLine(u.Out, f) })
}

func printLine(w io.Writer, f frame) error {
	_, err := fmt.Fprintln(w, time.Now().Format(time.TimeOnly), f.short())
	return err
}

// topOnce prints one frame, of what went on for a second.
func topOnce(ctx context.Context, w *watch, u *terminal.UI) error {
	if !pause(ctx, topEvery) {
		return ctx.Err()
	}
	f := w.look(ctx)
	if f.err != nil {
		return w.failed(f.err)
	}
	if u.JSON {
		return u.Emit(f.line())
	}
	width := onceWidth
	if out, ok := u.Out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(out.Fd())); err == nil {
			width = columns
		}
	}
	_, err := io.WriteString(u.Out, f.draw(width))
	return err
}

// topLines gives a frame a second to show until the mount is gone.
func topLines(ctx context.Context, w *watch, show func(frame) error) error {
	for pause(ctx, topEvery) {
		f := w.look(ctx)
		if f.err != nil {
			return w.failed(f.err)
		}
		if err := show(f); err != nil {
			if errors.Is(err, unix.EPIPE) {
				return exit.Errorf(exit.Pipe, "write: %w", err)
			}
			return err
		}
	}
	return ctx.Err()
}

// pause waits; no means that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch reads the status of a mount again and again. A read that does not come
// back is waited for while the watch goes on; there is never a second beside it.
type watch struct {
	point, path string
	history     []*fs.Status // the newest last
	reading     chan looked  // of a read that is late; nil: there is none
	asked       time.Time
	patience    time.Duration
}

type looked struct {
	status *fs.Status
	err    error
}

func newWatch(point string) *watch {
	return &watch{point: point, path: filepath.Join(point, "status.json"), patience: topPatience}
}

// frame is what is known at one time.
type frame struct {
	point string
	// now and before are two states, some seconds apart; now may be the last that
	// is known of a mount that does not answer.
	now, before *fs.Status
	silent      time.Duration // for how long it has not answered, 0 where it has
	err         error         // the watch is over
}

// look reads the status. The first time it waits for as long as it takes.
func (w *watch) look(ctx context.Context) frame {
	if w.reading == nil {
		w.reading, w.asked = make(chan looked, 1), time.Now()
		go func(to chan<- looked) { to <- readStatus(w.path) }(w.reading)
	}
	var x looked
	late := time.NewTimer(w.patience)
	defer late.Stop()
	select {
	case x = <-w.reading:
	case <-ctx.Done():
		return frame{point: w.point, err: ctx.Err()}
	case <-late.C:
		if len(w.history) == 0 {
			return frame{point: w.point, err: fmt.Errorf("%s has not answered for %s", w.point, terminal.Round(time.Since(w.asked)))}
		}
		f := w.frame()
		f.silent = time.Since(w.asked)
		return f
	}
	w.reading = nil
	if x.err != nil {
		return frame{point: w.point, err: x.err}
	}
	w.history = append(w.history, x.status)
	if len(w.history) > topRateSeconds+1 {
		w.history = w.history[1:]
	}
	return w.frame()
}

func (w *watch) frame() frame {
	f := frame{point: w.point, now: w.history[len(w.history)-1]}
	for _, s := range w.history[:len(w.history)-1] {
		if s.Started.Equal(f.now.Started) && s.RestoredAt.Equal(f.now.RestoredAt) {
			f.before = s
			break
		}
	}
	return f
}

func readStatus(path string) looked {
	b, err := os.ReadFile(path)
	if err != nil {
		return looked{err: err}
	}
	s := new(fs.Status)
	if err := json.Unmarshal(b, s); err != nil {
		return looked{err: fmt.Errorf("%s: %w", path, err)}
	}
	return looked{status: s}
}

// failed says why the watch is over.
func (w *watch) failed(err error) error {
	seen := len(w.history) > 0
	gone := errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case gone && seen:
		return exit.Errorf(exit.Mount, "%s was unmounted, or its server has ended", w.point)
	case errors.Is(err, unix.ENOTCONN):
		return exit.Errorf(exit.Mount, "the server of %s is gone: mount again, which heals the place, or take it away with lsiofs umount %s",
			w.point, terminal.Quote(w.point))
	case errors.Is(err, os.ErrNotExist):
		return exit.Errorf(exit.Mount, "%s is no mount of lsiofs: there is no %s; name the directory that lsiofs mount was given", w.point, w.path)
	}
	return exit.Errorf(exit.Mount, "top: %w", err)
}
