package fs

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"sort"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// readingReport describes what is read below epoch-N, which moves no mark.
type readingReport struct {
	// Epoch, Directory and EpochShare are those of the stream that was read last and of the streams
	// that belong to it: of the same epoch, from the same record on, for the same number of
	// workers. The share is of the epoch's records, counting each stream that was read here up to
	// its furthest read; workers that read on other machines are not known here.
	Epoch      uint64  `json:"epoch"`
	Directory  string  `json:"directory"`
	EpochShare float64 `json:"epoch_share"`
	// Latest is set if no worker file of the root has been read since.
	Latest  bool           `json:"latest"`
	Streams []streamReport `json:"streams"` // the most recently read ones, latest first
	More    uint64         `json:"more"`    // number of streams that are not in Streams
}

// streamReport is one stream below epoch-N.
type streamReport struct {
	Name      string `json:"name"` // path below the mount point
	Directory string `json:"directory"`
	Epoch     uint64 `json:"epoch"`
	From      uint64 `json:"from"`
	Worker    uint64 `json:"worker"`
	Workers   uint64 `json:"workers"`
	SizeBytes int64  `json:"size_bytes"`
	// ReadBytes is the furthest end of what its reader was sent.
	ReadBytes  int64   `json:"read_bytes"`
	EpochShare float64 `json:"epoch_share"` // of the epoch, including the From records before it
	// BytesPerSecond is the mean since it was opened.
	BytesPerSecond float64   `json:"bytes_per_second"`
	ReadAt         time.Time `json:"read_at"`
	ReaderPID      uint32    `json:"reader_pid"`
	Open           bool      `json:"open"`
}

// readingShown bounds the list of streams in status.
const readingShown = 16

// streamPlace is the position of a handle below epoch-N, now or when it was closed.
type streamPlace struct {
	node           *streamNode
	read, sent     int64 // bytes: the furthest end, and the total
	opened, lastly int64 // meter.Now
	pid            uint32
	open           bool
}

// place returns h's place. It returns false if h is not a handle below epoch-N that was read.
func (h *streamHandle) place() (streamPlace, bool) {
	p := streamPlace{
		node: h.node, read: h.furthest.Load(), sent: h.bytes.Load(), opened: h.opened, lastly: h.began.Load(),
		pid: h.pid, open: true,
	}
	return p, h.node.view == 0 && h.node.name.kind == stream.Data && p.read > 0
}

// raise sets at to end if that is further.
func raise(at *atomic.Int64, end int64) {
	for {
		if old := at.Load(); end <= old || at.CompareAndSwap(old, end) {
			return
		}
	}
}

// leave keeps the place of a handle that is being closed. A stream that was read to its end and
// closed must not vanish from an epoch that others are still reading.
func (s *handles) leave(h *streamHandle) {
	p, is := h.place()
	if !is {
		return
	}
	if s.left == nil {
		s.left = make(map[string]streamPlace)
	}
	p.open = false
	s.left[h.node.path] = p
	if len(s.left) > keptWorkers {
		oldest := h.node.path
		for name, q := range s.left {
			if q.lastly < s.left[oldest].lastly {
				oldest = name
			}
		}
		delete(s.left, oldest)
	}
}

// places returns the streams below epoch-N that are open and were read, one each, and the closed
// ones that belong to the one that was read last; the latest first.
func (s *handles) places() []streamPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := make(map[string]streamPlace, len(s.left))
	note := func(p streamPlace) {
		if q, known := latest[p.node.path]; !known || p.lastly > q.lastly {
			latest[p.node.path] = p
		}
	}
	for _, p := range s.left {
		note(p)
	}
	for _, h := range s.byNum {
		if p, is := h.place(); is {
			note(p)
		}
	}
	var last streamPlace
	for _, p := range latest {
		if last.node == nil || p.lastly > last.lastly {
			last = p
		}
	}
	places := make([]streamPlace, 0, len(latest))
	for _, p := range latest {
		if p.open || p.with(last) {
			places = append(places, p)
		}
	}
	sort.Slice(places, func(i, j int) bool {
		a, b := &places[i], &places[j]
		return cmp.Or(cmp.Compare(b.lastly, a.lastly), cmp.Compare(a.node.path, b.node.path)) < 0
	})
	return places
}

// with reports whether p and q are read for the same epoch by the same workers.
func (p streamPlace) with(q streamPlace) bool {
	return p.node.epoch == q.node.epoch && p.node.from == q.node.from && p.node.name.of == q.node.name.of
}

// ofEpoch returns the share of an epoch that is before read of size bytes of a stream which starts
// at record from, of records.
func ofEpoch(from, records uint64, read, size int64) float64 {
	done := 1.0
	if size > 0 {
		done = float64(read) / float64(size)
	}
	if records == 0 {
		return done
	}
	before := float64(from) / float64(records)
	return before + (1-before)*done
}

// reading returns what is read below epoch-N, nil if nothing was.
func (t *tree) reading(v *view) *readingReport {
	places, now, clock := t.handles.places(), time.Now(), meter.Now()
	if len(places) == 0 {
		return nil
	}
	last := places[0]
	at := func(p streamPlace) time.Time { return now.Add(time.Duration(p.lastly - clock)) }
	r := &readingReport{Epoch: last.node.epoch, Directory: path.Dir(last.node.path), More: uint64(max(len(places)-readingShown, 0))}
	r.Latest = last.lastly >= v.movedClock.Load()
	var read, size int64
	for i, p := range places {
		n := p.node
		if p.with(last) {
			read, size = read+p.read, size+n.sizeBytes
		}
		if i >= readingShown {
			continue
		}
		until := clock
		if !p.open {
			until = p.lastly
		}
		r.Streams = append(r.Streams, streamReport{
			Name: n.path, Directory: path.Dir(n.path), Epoch: n.epoch, From: n.from, Worker: n.name.worker, Workers: n.name.of, SizeBytes: n.sizeBytes,
			ReadBytes: p.read, EpochShare: ofEpoch(n.from, n.total, p.read, n.sizeBytes),
			BytesPerSecond: perSecond(p.sent, time.Duration(until-p.opened)), ReadAt: at(p), ReaderPID: p.pid, Open: p.open,
		})
	}
	r.EpochShare = ofEpoch(last.node.from, last.node.total, read, size)
	return r
}

// write writes the part of status for people.
func (r *readingReport) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\nin progress: epoch %d, %.1f %% so far\n", r.Epoch, r.EpochShare*100)
	for _, s := range r.Streams {
		fmt.Fprintf(b, "  %-36s %5.1f %% of the epoch, %d of %d bytes, %s\n", printable.Line(s.Name), s.EpochShare*100, s.ReadBytes, s.SizeBytes, s.reader())
	}
	if r.More > 0 {
		fmt.Fprintf(b, "  … and %d more\n", r.More)
	}
}

func (s *streamReport) reader() string {
	switch {
	case !s.Open:
		return "closed"
	case s.ReaderPID != 0:
		return fmt.Sprintf("%s/s, read by process %d", size(int64(s.BytesPerSecond)), s.ReaderPID)
	}
	return size(int64(s.BytesPerSecond)) + "/s, read by a process in another container"
}

// closedReads is when each worker's files were last read through handles that are now closed. A
// program that reads a file, closes it and opens it again, or opens that of the next epoch, is one
// reader.
type closedReads struct{ last map[uint64]int64 }

// keptWorkers bounds it; workers beyond it are not counted as readers once their handles are
// closed.
const keptWorkers = 1024

// note records a handle that is being closed.
func (f *closedReads) note(h *streamHandle) {
	began := h.began.Load()
	if began == 0 {
		return
	}
	if f.last == nil {
		f.last = map[uint64]int64{}
	}
	if _, known := f.last[h.node.name.worker]; known || len(f.last) < keptWorkers {
		f.last[h.node.name.worker] = max(began, f.last[h.node.name.worker])
	}
}

// readers returns the number of readers in the last minute, and how many of them read in the last
// second or have a read pending. It counts open handles, and workers without any.
func (s *handles) readers(now int64) (recent, active int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := map[uint64]bool{} // by worker
	count := func(began int64, reads bool) bool {
		switch {
		case began == 0 || !reads && now-began > 60*second:
			return false
		case reads || now-began <= second:
			active++
		}
		recent++
		return true
	}
	for _, h := range s.byNum {
		if count(h.began.Load(), h.pending.Load() > 0) {
			counted[h.node.name.worker] = true
		}
	}
	for w, began := range s.read.last {
		if now-began > 60*second {
			delete(s.read.last, w)
		} else if !counted[w] {
			count(began, false)
		}
	}
	return recent, active
}
