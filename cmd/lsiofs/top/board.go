package top

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

const (
	// historySamples bounds a mount's history, at one sample a second.
	historySamples = 600
	// mountsMost bounds how many mounts are watched at once.
	mountsMost = 64
	// listEvery is the interval at which the mount table is checked for new mounts.
	listEvery = 2 * time.Second
)

// board watches mounts, each once a second, for all clients.
type board struct {
	named           []string // the mounts to watch; if empty, all of the user's
	every, patience time.Duration

	mu     sync.Mutex
	mounts map[string]*watched // by mount point
	unseen int                 // number of the user's mounts beyond mountsMost
}

// watched is the known state of one mount. The board's lock guards its fields except server and
// metrics, which have their own locks so that only requests for metrics wait for metrics.
type watched struct {
	latest  frame
	message string // why there is nothing newer than latest; "" if all is well
	samples []sample
	stop    context.CancelFunc

	server *server

	metricsLock sync.Mutex
	metrics     patientFile
}

// sample is what readers received, and what they waited for, in one second.
type sample struct {
	Milliseconds   int64     `json:"ms"` // since 1970
	BytesPerSecond float64   `json:"bytes_per_second"`
	Waited         []float64 `json:"waited"` // share of the readers' time, by stage
}

// mountView is a mount in the page's data.
type mountView struct {
	Point       string   `json:"mount"`
	Message     string   `json:"message,omitempty"`
	Line        *Line    `json:"line,omitempty"`
	EpochShare  float64  `json:"epoch_share"`
	LeftSeconds float64  `json:"left_seconds"` // -1 if unknown
	MoreStreams int      `json:"more_streams"` // streams not listed in Line
	Facts       []fact   `json:"facts"`
	Samples     []sample `json:"samples"`
}

// fact is one line of text for the page.
type fact struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

func newBoard(named []string) *board {
	return &board{named: named, every: every, patience: patience, mounts: map[string]*watched{}}
}

// run watches until ctx ends, and then waits for the watching goroutines.
func (b *board) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	for {
		points, err := b.points()
		if err == nil {
			b.attend(ctx, points, &watching)
		}
		if !pause(ctx, listEvery) {
			return
		}
	}
}

// points returns the mounts to watch now.
func (b *board) points() ([]string, error) {
	if len(b.named) > 0 {
		return b.named, nil
	}
	return userMounts()
}

// attend starts to watch new mounts and forgets those that are gone.
func (b *board) attend(ctx context.Context, points []string, watching *sync.WaitGroup) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := map[string]bool{}
	b.unseen = max(len(points)-mountsMost, 0)
	for _, point := range points[:len(points)-b.unseen] {
		there[point] = true
		if b.mounts[point] != nil {
			continue
		}
		of, stop := context.WithCancel(ctx)
		w := newWatch(point)
		w.status.patience = b.patience
		m := &watched{stop: stop, server: w.server, message: "no data yet", metrics: patientFile{path: filepath.Join(point, "metrics"), patience: b.patience}}
		b.mounts[point] = m
		watching.Go(func() { b.follow(of, w, m) })
	}
	for point, m := range b.mounts {
		if !there[point] {
			m.stop()
			delete(b.mounts, point)
		}
	}
}

// follow reads one mount's status once a second. It keeps trying after the mount is gone, because
// it may be mounted again.
func (b *board) follow(ctx context.Context, w *watch, m *watched) {
	defer w.close()
	for {
		f := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		message := ""
		switch {
		case f.err != nil:
			message = w.failed(f.err).Error()
		case f.silent > 0:
			message = f.silence()
		}
		b.mu.Lock()
		m.message = printable.Line(message)
		if f.err == nil {
			m.latest = f
		}
		if message == "" {
			m.samples = append(m.samples, f.sample())
			m.samples = m.samples[max(len(m.samples)-historySamples, 0):]
		}
		b.mu.Unlock()
		if !pause(ctx, b.every) {
			return
		}
	}
}

func (f *frame) sample() sample {
	s := sample{Milliseconds: time.Now().UnixMilli(), BytesPerSecond: f.rate()}
	for _, stage := range f.now.Explain.Second.Stages {
		s.Waited = append(s.Waited, stage.Waited)
	}
	return s
}

// boardState is the data that the page requests.
type boardState struct {
	Mounts []mountView `json:"mounts"`
	// Unseen is the number of mounts that are not watched because there are too many.
	Unseen int `json:"unseen"`
}

// state returns all mounts sorted by name, each with its samples after a time in milliseconds since
// 1970.
func (b *board) state(after int64) boardState {
	b.mu.Lock()
	defer b.mu.Unlock()
	views := make([]mountView, 0, len(b.mounts))
	for point, m := range b.mounts {
		from := sort.Search(len(m.samples), func(i int) bool { return m.samples[i].Milliseconds > after })
		v := mountView{Point: printable.Line(point), Message: m.message, LeftSeconds: -1, Facts: []fact{}, Samples: append([]sample{}, m.samples[from:]...)}
		if m.latest.now != nil {
			m.latest.fill(&v)
		}
		views = append(views, v)
	}
	sort.Slice(views, func(i, j int) bool { return views[i].Point < views[j].Point })
	return boardState{Mounts: views, Unseen: b.unseen}
}

// fill sets what the page shows of a frame.
func (f *frame) fill(v *mountView) {
	line := f.line()
	line.Silent = f.silent.Seconds()
	line.Streams = line.Streams[:min(len(line.Streams), shownStreams)]
	v.Line, v.MoreStreams = &line, f.streamsInAll()-len(line.Streams)
	v.EpochShare, v.LeftSeconds = f.epoch()
	describe := func(label, format string, args ...any) {
		v.Facts = append(v.Facts, fact{label, printable.Line(fmt.Sprintf(format, args...))})
	}
	x := &f.now.Pipeline.Fetch
	describe("memory", "%s of %s held", terminal.Bytes(x.HeldBytes), terminal.Bytes(x.BudgetBytes))
	describe("records", "%s", f.counted())
	f.describe(describe)
}

// scrape reads the metrics of all mounts concurrently, waiting for each at most its patience.
func (b *board) scrape(ctx context.Context) []scraped {
	b.mu.Lock()
	var all []scraped
	var files []*watched
	for point, m := range b.mounts {
		all, files = append(all, scraped{point: point}), append(files, m)
	}
	b.mu.Unlock()
	var reading sync.WaitGroup
	for i, m := range files {
		reading.Go(func() {
			m.metricsLock.Lock()
			defer m.metricsLock.Unlock()
			if _, stopped := m.server.stopped(); stopped != nil {
				return
			}
			text, _, err := m.metrics.read(ctx)
			if err == nil {
				all[i].text = string(text)
			}
		})
	}
	reading.Wait()
	sort.Slice(all, func(i, j int) bool { return all[i].point < all[j].point })
	return all
}

// userMounts returns the mounts that the user made, in the order of their creation, without
// duplicate mount points.
func userMounts() ([]string, error) {
	mounts, err := fs.Mounts()
	if err != nil {
		return nil, err
	}
	return mountsOf(mounts, os.Getuid()), nil
}

func mountsOf(mounts []fs.MountEntry, uid int) []string {
	var points []string
	seen := map[string]bool{}
	for _, m := range mounts {
		top, _ := fs.TopMount(mounts, m.Point)
		if m.Type != fs.FileSystemType || m.User != uid || top.ID != m.ID || seen[m.Point] {
			continue
		}
		seen[m.Point] = true
		points = append(points, m.Point)
	}
	return points
}
