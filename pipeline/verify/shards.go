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
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Config configures Shards.
type Config struct {
	Catalog *catalog.Catalog
	// Storage is the storage of the catalog's root.
	Storage storage.Storage
	// Verifier checks shards that are computed from files, instead of reading them; nil if shards
	// are files.
	Verifier storage.Verifier
	// Profile describes which reads the storage is fast at.
	Profile storage.Profile
	// MemoryBytes bounds the memory of reads and decoders, apart from one of each; it is at least
	// 32 MiB.
	MemoryBytes int64
	// Progress, if set, is called repeatedly from one goroutine, and a last time with Done set.
	Progress func(catalog.Progress)
}

// Finding is one problem.
type Finding struct {
	Shard string `json:"shard"`
	// Record is the ordinal of the first record concerned; -1 if none can be named.
	Record int64 `json:"record"`
	// OffsetBytes is the position in the decoded shard; -1 for the whole shard. RawOffset is the
	// position of the damaged member in the file; -1 for an uncompressed shard.
	OffsetBytes int64  `json:"offset_bytes"`
	RawOffset   int64  `json:"raw_offset_bytes"`
	Reason      string `json:"reason"`
}

// Unread is a shard that could not be read completely. That proves no damage, so it is not a
// Finding.
type Unread struct {
	Shard  string `json:"shard"`
	Reason string `json:"reason"`
}

// maxUnread is how many shards may be unreadable before no further ones are begun: then the storage
// probably is, and each may take long to fail.
const maxUnread = 16

// MaxFindings is the maximum number of findings in a report; Report.Total counts all.
const MaxFindings = 1000

// maxShardFindings is the maximum number of findings for one shard: if every record is wrong, the
// rest adds no information.
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
	// Unread are in dataset order. If there are any, the report is incomplete.
	Unread []Unread `json:"unread"`
}

// Shards reads all shards, as many at a time as the profile recommends and memory allows; for local
// files that is one per core. If the storage has streams and the profile recommends them, each
// shard is one stream. Shards fails only if ctx ends; the report is then meaningless. After
// maxUnread shards that can't be read it begins no further ones.
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
	config  Config          // with defaults filled in
	streams storage.Storage // nil: shards are not read as streams
	workers int             // number of shards read at a time
	depth   int             // reads in flight per shard, without streams
	room    *catalog.DecoderRoom
	results []result // by shard; each is written by one worker only
	queue   []int    // shards, in the order of reading
	next    atomic.Int64

	shards  atomic.Int64
	bytes   atomic.Int64
	records atomic.Uint64
	unread  atomic.Int64
}

// newRun divides the memory: half of it is for data that is read but not processed yet, the rest
// for decoders.
func newRun(c Config) *run {
	cores := runtime.GOMAXPROCS(0)
	c.Profile, c.MemoryBytes = c.Profile.Or(), max(c.MemoryBytes, catalog.LeastDecoderBytes)
	r := &run{config: c, results: make([]result, c.Catalog.Shards()), room: catalog.NewDecoderRoom(c.MemoryBytes/2, cores)}
	r.largestFirst()
	p, most := c.Profile, c.MemoryBytes/2
	if p.Pass.StreamBytes > 0 && c.Storage.Caps().OpenSequential != nil {
		r.streams, r.workers = c.Storage, catalog.ShardsAtATime(p.Pass, true, most, cores)
		return r
	}
	inFlight := min(p.InFlightBytes, p.Pass.InFlightBytes, most)
	r.workers = max(1, min(p.Pass.ShardsAtATime(cores), int(most/(leastDepth*p.ReadBytes))))
	r.depth = max(leastDepth, int(inFlight/p.ReadBytes)/max(1, min(r.workers, len(r.queue))))
	return r
}

// leastDepth lets one read arrive while the previous one is processed.
const leastDepth = 2

// result has the findings in one shard.
type result struct {
	records      uint64
	decodedBytes int64
	findings     []Finding
	total        uint64
	unread       string // why it could not be read completely; "" if it could
}

// add counts a finding, and keeps it if it is among the first.
func (r *result) add(f Finding) {
	r.total++
	if len(r.findings) < maxShardFindings {
		r.findings = append(r.findings, f)
	}
}

// largestFirst fills the queue: a large shard at the end would leave cores idle.
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

// progress returns a function that returns the progress of the run.
func (r *run) progress() func() catalog.Progress {
	p := catalog.Progress{ShardsTotal: len(r.queue)}
	for _, i := range r.queue {
		o := r.config.Catalog.Shard(i).Object
		if r.config.Verifier != nil {
			p.BytesTotal += r.config.Verifier.AuditBytes(o)
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

// reasonOf returns an error's text without what the fields of a Finding already have.
func reasonOf(path string, err error) string {
	var located *storage.Error
	if errors.As(err, &located) {
		err = located.Err
	}
	text := strings.TrimPrefix(err.Error(), path+": ")
	// ErrChanged recommends mounting again, which does not help here.
	return strings.ReplaceAll(text, storage.ErrChanged.Error(), changedSince)
}

// changedSince is the message for a file that has changed since it was indexed.
const changedSince = "changed since it was indexed: run verify again, which indexes it again"
