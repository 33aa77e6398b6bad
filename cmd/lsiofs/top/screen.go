package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
)

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
