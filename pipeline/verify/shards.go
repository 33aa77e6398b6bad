package verify

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/decoding"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/sequential"
)

// Config says what Shards reads.
type Config struct {
	Catalog *catalog.Catalog
	// Storage is that of the catalog's root.
	Storage storage.Storage
	// Auditor checks shards that are computed from files, in place of reading them; nil where
	// shards are files.
	Auditor storage.Auditor
	// Profile says which reads the storage is fast at.
	Profile profile.Profile
	// MemoryBytes bounds what reads and decoders take, but for one of each; below 32 MiB
	// it is that.
	MemoryBytes int64
	// Progress, if set, is called now and then from one goroutine, and a last time with
	// Done.
	Progress func(catalog.Progress)
}

// Finding is one problem.
type Finding struct {
	Shard string `json:"shard"`
	// Record is the ordinal of the first record concerned; -1 if none can be named.
	Record int64 `json:"record"`
	// OffsetBytes is the place in the decoded shard; -1 where it is all of it. RawOffset is the place of the
	// damaged member in the file; -1 for an uncompressed shard.
	OffsetBytes int64  `json:"offset_bytes"`
	RawOffset   int64  `json:"raw_offset_bytes"`
	Reason      string `json:"reason"`
}

// Unread is a shard of which not all bytes came. That says nothing of what they are, so it is
// no Finding.
type Unread struct {
	Shard  string `json:"shard"`
	Reason string `json:"reason"`
}

// maxUnread is how many shards may turn out to be unreadable before no other one is begun:
// where so many are, so is the storage, and each may be waited for for a long time.
const maxUnread = 16

// MaxFindings is how many findings a report lists; Report.Total counts all.
const MaxFindings = 1000

// maxShardFindings is how many of one shard are listed: the rest of a shard
// whose every record is wrong says no more than its first.
const maxShardFindings = 100

// Report is the result of Shards.
type Report struct {
	Shards  int    `json:"shards"`
	Records uint64 `json:"records"`
	// Bytes is the size of the files, DecodedBytes their size when decompressed.
	Bytes        int64 `json:"bytes"`
	DecodedBytes int64 `json:"decoded_bytes"`
	// Findings are in dataset order, at most MaxFindings; Total counts all.
	Findings []Finding `json:"findings"`
	Total    uint64    `json:"findings_total"`
	// Unread are in dataset order. Where there is one, the report is not of all that there is.
	Unread []Unread `json:"unread"`
}

// Shards reads all shards, as many at a time as the profile says and memory allows; for
// local files that is one for each core. Where the storage has streams and the profile
// asks for them, each shard is one. It fails only if ctx ends; the report is then
// meaningless. After maxUnread shards that can't be read it begins no other one.
func Shards(ctx context.Context, c Config) (Report, error) {
	run := newRun(c)
	workers := min(run.workers, len(run.queue))
	stop := catalog.Tell(c.Progress, run.progress())
	defer stop(false)
	g, gctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			w, err := newWorker(gctx, run)
			if err != nil {
				return err
			}
			defer w.close()
			return w.work()
		})
	}
	if err := g.Wait(); err != nil {
		return Report{}, err
	}
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	stop(true)
	return run.report(), nil
}

// run is one call of Shards.
type run struct {
	config  Config             // with its defaults
	streams sequential.Storage // nil: shards are not read as streams
	workers int                // so many shards are read at a time
	depth   int                // reads under way of each, without streams
	room    *decoding.Room
	results []result // by shard; each is written by one worker
	queue   []int    // the shards, in the order in which they are read
	next    atomic.Int64

	shards  atomic.Int64
	bytes   atomic.Int64
	records atomic.Uint64
	unread  atomic.Int64
}

// newRun divides the memory: half of it is for what is read and not looked at yet, and
// all that is free for decoders.
func newRun(c Config) *run {
	cores := runtime.GOMAXPROCS(0)
	c.Profile, c.MemoryBytes = c.Profile.Or(), max(c.MemoryBytes, decoding.LeastBytes)
	r := &run{config: c, results: make([]result, c.Catalog.Shards()), room: decoding.NewRoom(c.MemoryBytes/2, cores)}
	r.largestFirst()
	p, most := c.Profile, c.MemoryBytes/2
	if s, ok := c.Storage.(sequential.Storage); ok && p.Pass.StreamBytes > 0 {
		r.streams, r.workers = s, catalog.ShardsAtATime(p.Pass, true, most, cores)
		return r
	}
	inFlight := min(p.InFlightBytes, p.Pass.InFlightBytes, most)
	r.workers = max(1, min(p.Pass.ShardsAtATime(cores), int(most/(leastDepth*p.ReadBytes))))
	r.depth = max(leastDepth, int(inFlight/p.ReadBytes)/max(1, min(r.workers, len(r.queue))))
	return r
}

// leastDepth has one read come while the one before is looked at.
const leastDepth = 2

// result is what was found in one shard.
type result struct {
	records      uint64
	decodedBytes int64
	findings     []Finding
	total        uint64
	unread       string // why not all of it could be read; "" where it could
}

// add counts a finding, and keeps the first of them.
func (r *result) add(f Finding) {
	r.total++
	if len(r.findings) < maxShardFindings {
		r.findings = append(r.findings, f)
	}
}

// largestFirst makes the queue: a large shard that comes last would leave cores
// idle.
func (r *run) largestFirst() {
	c := r.config.Catalog
	sizes := make([]int64, c.Shards())
	r.queue = make([]int, c.Shards())
	for i := range r.queue {
		r.queue[i], sizes[i] = i, c.Shard(i).Object.SizeBytes
	}
	slices.SortStableFunc(r.queue, func(i, j int) int {
		return int(min(1, max(-1, sizes[j]-sizes[i])))
	})
}

// progress gives how far the run has come.
func (r *run) progress() func() catalog.Progress {
	p := catalog.Progress{ShardsTotal: len(r.queue)}
	for _, i := range r.queue {
		o := r.config.Catalog.Shard(i).Object
		if r.config.Auditor != nil {
			p.BytesTotal += r.config.Auditor.AuditBytes(o)
		} else {
			p.BytesTotal += o.SizeBytes
		}
	}
	return func() catalog.Progress {
		p := p
		p.Shards, p.Bytes, p.Records = int(r.shards.Load()), r.bytes.Load(), r.records.Load()
		return p
	}
}

func (r *run) report() Report {
	rep := Report{Shards: len(r.results), Bytes: r.bytes.Load(), Findings: []Finding{}, Unread: []Unread{}}
	for i, s := range r.results {
		rep.Records += s.records
		rep.DecodedBytes += s.decodedBytes
		rep.Total += s.total
		rep.Findings = append(rep.Findings, s.findings[:min(len(s.findings), MaxFindings-len(rep.Findings))]...)
		if s.unread != "" {
			rep.Unread = append(rep.Unread, Unread{r.config.Catalog.Shard(i).Object.Path, s.unread})
		}
	}
	return rep
}

// reasonOf is an error's text without what a Finding says elsewhere.
func reasonOf(path string, err error) string {
	var located *storage.Error
	if errors.As(err, &located) {
		err = located.Err
	}
	text := strings.TrimPrefix(err.Error(), path+": ")
	// Mounting again, which a mount says, would not help who verifies.
	return strings.ReplaceAll(text, storage.ErrChanged.Error(), changedSince)
}

// changedSince is what is said of a file that is not the one any more that was indexed.
const changedSince = "changed since it was indexed: verify it again, which indexes it again"
