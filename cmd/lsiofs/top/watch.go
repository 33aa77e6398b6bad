package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

// patientFile reads a file of a mount repeatedly. If a read does not return, its owner can go on
// without it, and no second one is started meanwhile.
type patientFile struct {
	path     string
	patience time.Duration // how long a call waits before it reports that there is no answer
	reading  chan fileRead // a read that is late; nil if none is
	asked    time.Time
}

type fileRead struct {
	bytes []byte
	err   error
}

// read returns the file's bytes, or for how long the mount has not returned them.
func (f *patientFile) read(ctx context.Context) (b []byte, silent time.Duration, err error) {
	if f.reading == nil {
		f.reading, f.asked = make(chan fileRead, 1), time.Now()
		go func(to chan<- fileRead, path string) {
			b, err := os.ReadFile(path)
			to <- fileRead{b, err}
		}(f.reading, f.path)
	}
	late := time.NewTimer(f.patience)
	defer late.Stop()
	select {
	case x := <-f.reading:
		f.reading = nil
		return x.bytes, 0, x.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-late.C:
		return nil, time.Since(f.asked), nil
	}
}

// serverAgain is how long it is taken for known which process serves a mount.
const serverAgain = 10 * time.Second

// server is the process that serves a mount, as far as it can be seen from here. A stopped server
// must not be asked anything: the mount would be busy, and could not be unmounted, until it resumes.
type server struct {
	point string

	mu     sync.Mutex
	mount  fs.MountEntry
	found  *fs.Server // of mount
	said   int        // the process that the mount's status named last; 0 if it named none
	at     time.Time  // when it was looked for
	since  time.Time  // when it was first seen to be stopped; zero if it is not
	closed bool
}

// stopped returns an error that names the server if that is stopped, and for how long it has been
// known to be stopped.
func (s *server) stopped() (silent time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case !s.since.IsZero():
		if m, ok := s.mounted(); !ok || m.ID != s.mount.ID {
			s.drop()
		}
	case time.Since(s.at) >= serverAgain:
		s.find()
	}
	if s.found != nil {
		err = s.found.StoppedError(s.point)
	}
	switch {
	case err == nil:
		s.since = time.Time{}
		return 0, nil
	case s.since.IsZero():
		s.since = time.Now()
	}
	return max(time.Since(s.since), 1), err
}

// find looks for the server, unless the one that was found still serves the mount. s.mu is held.
func (s *server) find() {
	m, ok := s.mounted()
	if !ok || s.found == nil || m.ID != s.mount.ID || s.found.HasEnded() {
		s.drop()
		if ok {
			s.mount, s.found = m, fs.FindServerUnasked(m, s.said)
		}
	}
	s.at = time.Now()
}

// names notes the process that the mount's status names.
func (s *server) names(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid != s.said && s.found == nil {
		s.at = time.Time{} // look for it at once
	}
	s.said = pid
}

// mounted returns the mount, if there is one.
func (s *server) mounted() (m fs.MountEntry, ok bool) {
	point, err := fs.ResolvePoint(s.point)
	if err != nil {
		return m, false
	}
	mounts, err := fs.Mounts()
	if err != nil {
		return m, false
	}
	m, ok = fs.TopMount(mounts, point)
	return m, ok && m.Type == fs.FileSystemType
}

// drop makes the next call of stopped look for the server again. s.mu is held.
func (s *server) drop() {
	if s.found != nil {
		s.found.Close()
	}
	s.found, s.at, s.since = nil, time.Time{}, time.Time{}
}

// forget is called when the mount is gone: another server may serve the next one there.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

// close ends the use of the server. It is not looked for again.
func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	s.closed = true
}

// watch reads the status of a mount repeatedly.
type watch struct {
	point   string
	server  *server
	status  patientFile
	history []*fs.Status // the newest is last

	first   time.Time // when the read was begun about which answers was determined
	answers error     // the reason why a mount that has never answered does not; nil: it does, but its status takes long
}

// newWatch returns a watch, which the caller closes.
func newWatch(point string) *watch {
	return &watch{point: point, server: &server{point: point}, status: patientFile{path: filepath.Join(point, "status.json"), patience: patience}}
}

func (w *watch) close() { w.server.close() }

// frame is the known state at one time.
type frame struct {
	point string
	// now and before are two states, some seconds apart. now may be the last known state of a mount
	// that does not answer.
	now, before *fs.Status
	silent      time.Duration // for how long it has not answered; 0 if it has
	stopped     error         // if its server is stopped
	err         error         // the reason why the watch has ended
}

// look reads the status. It returns an error if a mount that has never answered exceeds the watch's
// patience.
func (w *watch) look(ctx context.Context) frame {
	if silent, stopped := w.server.stopped(); stopped != nil {
		if len(w.history) == 0 {
			return frame{point: w.point, err: stopped}
		}
		return w.silentFrame(silent, stopped)
	}
	b, silent, err := w.status.read(ctx)
	switch {
	case err != nil:
		w.server.forget()
		return frame{point: w.point, err: err}
	case silent > 0 && len(w.history) == 0:
		if w.first != w.status.asked { // one question for each read, because each may hang
			w.first, w.answers = w.status.asked, fs.Answers(ctx, w.point)
		}
		if w.answers == nil {
			return frame{point: w.point, err: fmt.Errorf("%s has not answered for %s", w.status.path, terminal.Round(silent))}
		}
		return frame{point: w.point, err: w.answers}
	case silent > 0:
		return w.silentFrame(silent, nil)
	}
	s := new(fs.Status)
	if err := json.Unmarshal(b, s); err != nil {
		return frame{point: w.point, err: fmt.Errorf("%s: %w", w.status.path, err)}
	}
	w.server.names(s.Process.PID)
	w.history = append(w.history, s)
	if len(w.history) > rateSeconds+1 {
		w.history = w.history[1:]
	}
	return w.frame()
}

// silentFrame is the last known state of a mount that does not answer.
func (w *watch) silentFrame(silent time.Duration, stopped error) frame {
	f := w.frame()
	f.silent, f.stopped = silent, stopped
	return f
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

// failed returns an error that describes why the watch has ended.
func (w *watch) failed(err error) error {
	seen := len(w.history) > 0
	gone := errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.ECANCELED) || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case gone && seen:
		return exit.Errorf(exit.Mount, "%s was unmounted, or its server ended", w.point)
	case errors.Is(err, fs.ErrSilent):
		return exit.With(exit.Mount, err)
	}
	return exit.With(exit.Mount, fs.Unreachable(w.point, err))
}

// scraped holds the metrics of one mount in Prometheus' text format.
type scraped struct {
	point string
	text  string // "" if the mount did not return them
}

// merged joins the metrics of several mounts: each value gets the label mount, and all values of a
// metric are together, as the format requires (prometheus.io/docs/instrumenting/exposition_formats,
// version 0.0.4). lsiofs_up is 1 for a mount that returned its metrics, and 0 for one that did not.
func merged(mounts []scraped) []byte {
	type family struct{ head, values strings.Builder }
	families := map[string]*family{}
	var names []string
	of := func(name string) *family {
		f := families[name]
		if f == nil {
			f = new(family)
			families[name] = f
			names = append(names, name)
		}
		return f
	}
	const up = "lsiofs_up"
	of(up).head.WriteString("# HELP lsiofs_up Whether the mount answered, 1 or 0.\n# TYPE lsiofs_up gauge\n")
	for _, m := range mounts {
		label := fs.MetricLabel("mount", m.point)
		value := " 0\n"
		if m.text != "" {
			value = " 1\n"
		}
		of(up).values.WriteString(up + "{" + label + "}" + value)
		var current *family
		var inHead, known bool
		for line := range strings.Lines(m.text) {
			line = strings.TrimSuffix(line, "\n")
			if rest, ok := strings.CutPrefix(line, "# "); ok { // HELP and TYPE of one metric, in either order
				words := strings.SplitN(rest, " ", 3)
				if len(words) < 3 {
					continue
				}
				if !inHead {
					_, known = families[words[1]]
					current = of(words[1])
				}
				inHead = true
				if !known {
					current.head.WriteString(line + "\n")
				}
				continue
			}
			inHead = false
			at := strings.IndexAny(line, "{ ")
			if current == nil || at < 0 {
				continue
			}
			name, rest := line[:at], line[at:]
			if labels, ok := strings.CutPrefix(rest, "{"); ok {
				current.values.WriteString(name + "{" + label + "," + labels + "\n")
			} else {
				current.values.WriteString(name + "{" + label + "}" + rest + "\n")
			}
		}
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(families[name].head.String())
		b.WriteString(families[name].values.String())
	}
	return []byte(b.String())
}
