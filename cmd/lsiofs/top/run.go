package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// Options select what is watched, and where it is shown.
type Options struct {
	// Points are the mounts. If empty, they are the user's only mount or, with Listen, all of the
	// user's mounts.
	Points []string
	Once   bool
	// Listen is the address and port of a page and of metrics, or "" to use the terminal.
	Listen string
}

const (
	every = time.Second
	// patience is how long a status may take before the delay is reported.
	patience = 3 * time.Second
	// rateSeconds is the period over which streams' rates are averaged.
	rateSeconds = 10
	// onceWidth is the width of a frame without a terminal.
	onceWidth = 80
)

// Run shows frames until the mount is gone or ctx ends: on a terminal until q, otherwise one line a
// second, or a single frame with Once. With Listen it serves a page.
func Run(ctx context.Context, o Options, u *terminal.UI) error {
	if o.Listen != "" {
		return listen(ctx, o, u)
	}
	point, err := onlyPoint(o.Points)
	if err != nil {
		return err
	}
	w := newWatch(point)
	defer w.close()
	first := w.look(ctx)
	if first.err != nil {
		return w.failed(first.err)
	}
	out, isFile := u.Out.(*os.File)
	switch {
	case o.Once:
		return once(ctx, w, u)
	case u.JSON:
		return lines(ctx, w, func(f frame) error { return u.Emit(f.line()) })
	case isFile && term.IsTerminal(int(out.Fd())):
		return onScreen(ctx, w)
	}
	return lines(ctx, w, func(f frame) error { return printLine(u.Out, f) })
}

// onlyPoint returns the mount to show on a terminal.
func onlyPoint(named []string) (string, error) {
	points := named
	if len(named) == 0 {
		var err error
		if points, err = userMounts(); err != nil {
			return "", err
		}
	}
	switch {
	case len(points) == 0:
		return "", exit.Errorf(exit.Mount, "you have no mount: make one with lsiofs mount DATASET MNT")
	case len(points) > 1:
		return "", exit.Usagef("there are %d mounts (%s), and top shows one on a terminal: name one, or watch all with --listen 127.0.0.1:9464",
			len(points), strings.Join(points[:min(len(points), 3)], ", "))
	}
	return points[0], nil
}

func printLine(w io.Writer, f frame) error {
	_, err := fmt.Fprintln(w, time.Now().Format(time.TimeOnly), f.short())
	return err
}

// once prints one frame that covers one second.
func once(ctx context.Context, w *watch, u *terminal.UI) error {
	if !pause(ctx, every) {
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

// lines passes a frame a second to show until the mount is gone.
func lines(ctx context.Context, w *watch, show func(frame) error) error {
	for pause(ctx, every) {
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

// pause waits for d. It returns false if ctx has ended.
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

// onScreen redraws frames on the terminal until q, Escape or Ctrl-C, or until the mount is gone.
func onScreen(ctx context.Context, w *watch) error {
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("can't draw on the terminal: %w; lsiofs top MNT | cat prints lines instead", err)
	}
	err = drawFrames(ctx, w, screen)
	screen.Fini()
	return err
}

func drawFrames(ctx context.Context, w *watch, screen tcell.Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, quit := make(chan tcell.Event), make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); screen.ChannelEvents(events, quit) }()
	defer func() { close(quit); <-done }()

	// Frames come from a separate goroutine so that keys are never delayed. It owns the watch until
	// it has sent a frame that ends the watch.
	last := w.frame()
	frames := make(chan frame)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for {
			f := w.look(ctx)
			select {
			case frames <- f:
			case <-ctx.Done():
				return
			}
			if f.err != nil || !pause(ctx, every) {
				return
			}
		}
	}()
	defer func() { cancel(); <-watching }()

	for {
		drawOn(screen, last)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-frames:
			if f.err != nil {
				return w.failed(f.err)
			}
			last = f
		case e, open := <-events:
			if !open {
				return nil
			}
			switch e := e.(type) {
			case *tcell.EventKey:
				if e.Key() == tcell.KeyCtrlC || e.Key() == tcell.KeyEscape || e.Rune() == 'q' || e.Rune() == 'Q' {
					return nil
				}
			case *tcell.EventResize:
				screen.Sync()
			}
		}
	}
}

// drawOn draws a frame on the screen, without the parts that do not fit.
func drawOn(screen tcell.Screen, f frame) {
	width, height := screen.Size()
	screen.Clear()
	text := f.draw(width) + "\n" + time.Now().Format(time.TimeOnly) + "   q ends"
	for y, line := range strings.Split(text, "\n") {
		if y >= height {
			break
		}
		style := tcell.StyleDefault
		if y == 0 {
			style = style.Bold(true)
		}
		x := 0
		for _, r := range line { // every rune is one column wide
			screen.SetContent(x, y, r, nil, style)
			x++
		}
	}
	screen.Show()
}
