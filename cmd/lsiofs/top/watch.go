package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

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
	return &watch{point: point, path: filepath.Join(point, "status.json"), patience: patience}
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
	if len(w.history) > rateSeconds+1 {
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
	gone := errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.ECANCELED) || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
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
