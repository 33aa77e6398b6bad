package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/watch"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// Status is the state of a dataset that grows. Its fields are those of "growing" in a mount's
// status.json.
type Status struct {
	Run      string  `json:"run"`             // "" if none has begun
	RunDir   string  `json:"run_directory"`   // absolute
	Epoch    *uint64 `json:"epoch,omitempty"` // the latest that has been started
	Snapshot string  `json:"snapshot"`        // of that epoch, like the next two fields
	Taken    string  `json:"taken"`
	By       string  `json:"by"`
	// Latest is the whole record of that epoch.
	Latest *run.Epoch `json:"latest,omitempty"`
	Window string     `json:"window"`
	// Watch is "inotify" or "poll"; WatchWhy is the reason for poll.
	Watch    string `json:"watch"`
	WatchWhy string `json:"watch_why,omitempty"`
	// The New fields are what the next epoch would add to the latest. The Needed fields are how
	// much must be new; only one of them is not 0.
	NewShards     uint64 `json:"new_shards"`
	NewRecords    uint64 `json:"new_records"`
	NewUnits      uint64 `json:"new_units"`
	NeededUnits   uint64 `json:"needed_units"`
	NeededRecords uint64 `json:"needed_records,omitempty"`
	NeededShards  uint64 `json:"needed_shards,omitempty"`
	// NextEpoch describes why the next epoch can't start yet; "" if it may.
	NextEpoch string `json:"next_epoch,omitempty"`
	// UsesPerRecord is how often a record is used in the long run, if each epoch brings as much new
	// data as required, or as the latest did; nil if unknown.
	UsesPerRecord *float64 `json:"uses_per_record,omitempty"`
	// Warning is a warning for the user about these settings.
	Warning  string `json:"warning,omitempty"`
	Shards   int    `json:"shards"`   // indexed now, whether in the window or not
	Indexing int    `json:"indexing"` // settled files still to be indexed
	Settling int    `json:"settling"` // files that may still be written
	// Waiting has settled files that are incomplete, or of another kind; only some if there are
	// very many.
	Waiting         []Waiting `json:"waiting"`
	WaitingShards   int       `json:"waiting_shards"`
	PassedOver      int       `json:"passed_over"` // files that are not shards
	PassedOverFirst []string  `json:"passed_over_first,omitempty"`
	Overflows       uint64    `json:"overflows"` // times the kernel lost reports
	LastScanSeconds float64   `json:"last_scan_seconds"`
	NewestShard     string    `json:"newest_shard"`
	// Error is the current problem: directories that can't be listed, or a full disk.
	Error string `json:"error,omitempty"`
}

// Waiting is a file that may become a shard later.
type Waiting struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

const (
	// mostWaiting is the maximum number of them in a Status.
	mostWaiting = 100
	// manyUses of a record warrant a warning: a network memorizes it.
	manyUses = 4
)

// news is what the next epoch would add, as last computed.
type news struct {
	version uint64 // of the queue
	latest  uint64
	at      time.Time
	took    time.Duration

	news   catalog.News
	newest string
	short  *growing.NotYetError
	err    error
}

// Status returns the current state. The new data of the next epoch may be slightly out of date if
// there are very many shards: computing it is limited to a twentieth of a core.
func (t *Snapshotter) Status() Status {
	looks, stock := t.watcher.Status(), t.config.Index
	counts := stock.Counts()
	s := Status{
		Run: t.Run(), RunDir: t.config.RunDir, Window: t.config.Window.String(), Watch: looks.Watch, WatchWhy: looks.Why,
		Shards: counts.Shards, Indexing: t.queue.left(), Settling: looks.Settling, WaitingShards: counts.Waiting,
		PassedOver: counts.PassedOver, PassedOverFirst: stock.FirstPassed(), Overflows: looks.Overflows, LastScanSeconds: looks.Scan.Seconds(), Waiting: []Waiting{},
	}
	for i, w := range stock.Waiting() {
		if i == mostWaiting {
			break
		}
		s.Waiting = append(s.Waiting, Waiting{w.Path, w.Reason})
	}
	switch a := t.config.MinNew; a.Measure {
	case growing.Units:
		s.NeededUnits = a.N
	case growing.Records:
		s.NeededRecords = a.N
	case growing.Shards:
		s.NeededShards = a.N
	}
	latest, failure := t.find()
	if e, err := t.epoch(latest); err == nil && latest != run.None {
		s.Epoch, s.Snapshot, s.Taken, s.By, s.Latest = &latest, e.Snapshot, e.Taken, e.By, &e
		s.UsesPerRecord = t.uses(e)
	}
	n := t.newsNow(latest)
	s.NewShards, s.NewRecords, s.NewUnits, s.NewestShard = n.news.NewShards, n.news.NewRecords, n.news.NewUnits, n.newest
	if n.short != nil {
		s.NextEpoch = n.short.Error()
	}
	s.Warning = strings.Join(t.warnings(looks, s.UsesPerRecord), "; ")
	state, _ := t.queue.state()
	if err := errors.Join(failure, n.err, looks.Err, state.failure); err != nil {
		s.Error = err.Error()
	}
	return s
}

// warnings returns the warnings for the user.
func (t *Snapshotter) warnings(looks watch.Status, uses *float64) (list []string) {
	if uses != nil && *uses > manyUses {
		list = append(list, fmt.Sprintf("a record is used %.1f times: raise --min-new, narrow the --window, or take a --sample", *uses))
	}
	if !looks.Replaced.IsZero() {
		list = append(list, fmt.Sprintf("the dataset's directory was replaced by another one, which was seen at %s", looks.Replaced.UTC().Format(time.RFC3339)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ahead != "" {
		list = append(list, t.ahead)
	}
	return list
}

// epoch returns the record of an epoch.
func (t *Snapshotter) epoch(number uint64) (run.Epoch, error) {
	d, err := t.directory()
	if err != nil {
		return run.Epoch{}, err
	}
	return d.Epoch(number)
}

// uses returns how often a record is used in the long run, from the size of an epoch and how much
// is new in each; nil if unknown.
func (t *Snapshotter) uses(e run.Epoch) *float64 {
	all, fresh := e.Records, e.NewRecords
	switch a := t.config.MinNew; {
	case a.N > 0 && a.Measure == growing.Units:
		all, fresh = e.Units, a.N
	case a.N > 0 && a.Measure == growing.Shards:
		all, fresh = e.Shards, a.N
	case a.N > 0:
		fresh = a.N
	case e.Epoch == 0: // all of the first epoch is new, which predicts nothing
		return nil
	}
	if fresh == 0 {
		return nil
	}
	u := growing.Uses(all, fresh) / float64(max(t.config.SampleOf, 1))
	return &u
}

// newsNow returns the new data, computed again if something has changed since and the last
// computation is not too recent. While an epoch is being started the old value is returned:
// starting computes the same, and must be quick.
func (t *Snapshotter) newsNow(latest uint64) news {
	t.comparing.Lock() // concurrent callers share the result of the first one
	defer t.comparing.Unlock()
	state, _ := t.queue.state()
	t.mu.Lock()
	n := t.news
	fresh := n.latest == latest && (n.version == state.version || time.Since(n.at) < 20*n.took)
	fresh = !n.at.IsZero() && (fresh || t.attempt != nil)
	t.mu.Unlock()
	if fresh {
		return n
	}
	began := time.Now()
	n = t.compute(latest)
	n.version, n.latest, n.at, n.took = state.version, latest, time.Now(), time.Since(began)
	t.mu.Lock()
	t.news = n
	t.mu.Unlock()
	return n
}

// compute compares the current shards with the latest epoch.
func (t *Snapshotter) compute(latest uint64) (n news) {
	chosen := t.choose()
	if len(chosen) > 0 {
		n.newest = chosen[0].Path
	}
	if _, n.news, n.err = t.compare(latest+1, chosen); n.err == nil {
		n.short = t.enough(latest+1, chosen, n.news)
	}
	return n
}
