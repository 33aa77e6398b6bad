package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// By is how the program is run.
type By string

const (
	ByPipe    By = "pipe"
	ByDirs    By = "dirs"
	ByProcess By = "process"
)

// Each is the part of the data that the program gets at a time.
type Each string

const (
	EachShard Each = "shard"
	EachUnit  Each = "unit" // a game, a sample, a line, a record
)

// OnFailed is what to do with data that the program fails on.
type OnFailed string

const (
	FailedFail OnFailed = "fail" // the run ends
	FailedSkip OnFailed = "skip" // it is skipped
)

// Limits and defaults of settings.
const (
	MaxProcesses     = 4096
	MaxUnitBytes     = 1 << 40
	DefaultTimeout   = time.Hour
	DefaultPoll      = 30 * time.Second
	DefaultUnitBytes = 256 << 20
)

// Config configures a run.
type Config struct {
	Source, Destination string // directories
	// Exclude has patterns of files to exclude from SRC, as in spec.Spec.
	Exclude []string
	Format  spec.Format
	By      By
	Each    Each // "" for a unit; with ByPipe for a shard
	// Command is the program and its arguments. With ByDirs, {in} and {out} in the arguments are
	// replaced.
	Command []string
	// Name distinguishes this filter from others: with another name all shards are filtered again.
	Name string
	// Processes is the number of concurrent processes.
	Processes int
	// Timeout is how long a program may take for a shard or a batch, or for a reply.
	Timeout time.Duration
	// UnitBytes is the maximum size of a decoded unit, and of a reply.
	UnitBytes int64
	OnFailed  OnFailed
	// Watch continues with files that arrive in Source. Poll is how often directories without
	// change reports of the kernel are looked at, and results deleted (Mirror).
	Watch bool
	Poll  time.Duration
	// Settle is how long a file must stay unchanged if it is unknown whether a process is writing
	// it; 0: half a minute, on network file systems 70 seconds.
	Settle time.Duration
	// Mirror deletes the results of sources that are gone.
	Mirror bool
	// Found is called once, with the shards of SRC when the run knows what they are, and the files
	// that were left out. It must not be nil.
	Found func(*discover.Selection)
	// Said is called with lines that programs write to stderr, and the shard they are about; Warn
	// with warnings for the user. Round is called with the counts after each look at Source that
	// led to some work. They may be called concurrently, and must not be nil.
	Said  func(shard, line string)
	Warn  func(text string)
	Round func(Counts)
	// Progress is updated during a run. It must not be nil.
	Progress *Progress

	step    func() // called before each system call of a commit; tests set it
	noHints bool   // disable the kernel's reports; tests set it
}

// Default returns the default settings of a run.
func Default() Config {
	return Config{
		Format: spec.Default().Format, By: ByPipe, OnFailed: FailedFail, Timeout: DefaultTimeout, UnitBytes: DefaultUnitBytes,
		Poll: DefaultPoll, Progress: &Progress{},
	}
}

// Validate fills in dependent settings, and reports all problems at once.
func (c *Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Each == "" {
		if c.Each = EachUnit; c.By == ByPipe {
			c.Each = EachShard
		}
	}
	switch c.By {
	case ByPipe, ByProcess:
	case ByDirs:
		text := strings.Join(c.Command, "\x00")
		if !strings.Contains(text, "{in}") || !strings.Contains(text, "{out}") {
			bad("--by dirs needs {in} and {out} in the command's arguments: -- CMD --input={in} --output={out}")
		}
	default:
		bad("--by (%s) must be pipe, dirs or process", c.By)
	}
	switch {
	case c.Each != EachShard && c.Each != EachUnit:
		bad("--each (%s) must be shard or unit", c.Each)
	case c.Each == EachUnit && c.By == ByPipe:
		bad("--by pipe runs a program for each shard, and one for each unit would be slow: use --by process or --by dirs with --each unit")
	}
	if c.OnFailed != FailedFail && c.OnFailed != FailedSkip {
		bad("--on-failed (%s) must be fail or skip", c.OnFailed)
	}
	if c.Processes < 1 || c.Processes > MaxProcesses {
		bad("--processes (%d) must be 1 to %d", c.Processes, MaxProcesses)
	}
	if c.UnitBytes < 1 || c.UnitBytes > MaxUnitBytes {
		bad("--unit-bytes (%d) must be 1 to %d", c.UnitBytes, int64(MaxUnitBytes))
	}
	for name, d := range map[string]time.Duration{"timeout": c.Timeout, "poll": c.Poll} {
		if d <= 0 {
			bad("--%s (%s) must be above 0", name, d)
		}
	}
	if c.Settle < 0 {
		bad("--settle (%s) must be 0 or more", c.Settle)
	}
	if len(c.Command) == 0 {
		bad("there is no command: lsiofs filter SRC DST -- CMD…")
	}
	if len(c.Format.Arrays) > 0 || c.Format.Name == "files" || c.Format.Name == "zarr" {
		bad("shards that lsiofs puts together of several files can't be filtered: filter the files")
	}
	if discover.IsRemote(c.Source) || discover.IsRemote(c.Destination) {
		bad("filters work on directories: copy what is in a bucket or at a web server to a disk first")
	}
	return errors.Join(problems...)
}

// run is a run of a filter.
type run struct {
	Config
	program   *command.Program
	filterSum ledger.Sum
	ledger    *ledger.Ledger
	storage   storage.Storage // of SRC
	arrivals  *arrivals       // only with Watch
	commits   *commits
	servers   *servers // only with ByProcess
	crashes   *crashes
	tokens    chan struct{} // one per unit in memory
	warnings  atomic.Int64
	told      string          // the last warning about SRC
	leadIn    map[string]bool // paths in SRC that lead into DST and were warned about

	namesMu sync.Mutex
	names   *discover.Once // of results

	format *discover.Found // from the first shards; all others have the same format
	cutter *units.Cutter   // with EachUnit, once the format is known
}

// Run runs a filter. The configuration must have been validated. Run returns when all shards are
// done; with Watch, when ctx ends. The Counts cover all rounds.
//
// An error that wraps command.ErrNotFound or ErrPlaces is about the arguments; a *Failure is about
// a shard.
func Run(ctx context.Context, c Config) (counts Counts, err error) {
	r := &run{Config: c, tokens: make(chan struct{}, 2*c.Processes), crashes: newCrashes(c.Processes), leadIn: map[string]bool{}}
	if r.step == nil {
		r.step = func() {}
	}
	if r.program, err = command.Find(c.Command, c.Timeout, c.Said); err != nil {
		return counts, err
	}
	if r.filterSum, err = r.program.Sum(c.Name, string(c.By), string(c.Each)); err != nil {
		return counts, err
	}
	if r.Source, r.Destination, err = places(c.Source, c.Destination); err != nil {
		return counts, err
	}
	if err := os.MkdirAll(r.Destination, 0o777); err != nil {
		return counts, fmt.Errorf("make DST: %w", err)
	}
	if r.ledger, err = ledger.Open(r.Destination); err != nil {
		return counts, err
	}
	defer func() { err = errors.Join(err, r.ledger.Close()) }()
	r.names = discover.NewOnce("")
	for _, path := range r.ledger.Paths() {
		r.names.Add(storage.Object{Path: path})
	}
	engine, err := uring.Open(uring.ModePread)
	if err != nil {
		return counts, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	source, err := local.Open(r.Source, engine)
	if err != nil {
		return counts, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	r.storage = source
	r.commits = newCommits(r.ledger, r.Destination, r.step)
	defer r.commits.close()
	r.servers = newServers(r.program, c.Processes, r.crashes)
	defer func() {
		if closeErr := r.servers.close(ctx); closeErr != nil && err == nil {
			r.Warn(fmt.Sprintf("the command: %v", closeErr))
		}
	}()
	if r.Watch {
		err = r.watch(ctx)
	} else {
		err = r.once(ctx)
	}
	return r.Progress.Counts(), err
}

// ErrPlaces is wrapped by errors about SRC and DST.
var ErrPlaces = errors.New("name two directories, neither of them inside the other")

// placeError is an ErrPlaces with a different text, about only one of the two.
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string        { return e.place + ": " + e.err.Error() + ": check the path" }
func (e *placeError) Unwrap() error        { return e.err }
func (e *placeError) Is(target error) bool { return target == ErrPlaces }

// places returns absolute paths without links for SRC, which must exist, and DST.
func places(source, destination string) (src, dst string, err error) {
	src, err = filepath.EvalSymlinks(source)
	if err == nil {
		src, err = filepath.Abs(src)
	}
	if err != nil {
		return "", "", &placeError{"SRC", err}
	}
	if info, err := os.Stat(src); err != nil || !info.IsDir() {
		return "", "", &placeError{"SRC " + source, syscall.ENOTDIR}
	}
	if dst, err = resolved(destination); err != nil {
		return "", "", &placeError{"DST", err}
	}
	if within(src, dst) || within(dst, src) {
		return "", "", fmt.Errorf("SRC is %s and DST is %s: %w", src, dst, ErrPlaces)
	}
	return src, dst, nil
}

// isResult reports whether a path in SRC leads into DST through a link: results would be filtered,
// and then the results of those again. It warns of each such path once. It must not be called
// concurrently.
func (r *run) isResult(path string) bool {
	full := filepath.Join(r.Source, path)
	if info, err := os.Lstat(full); err != nil || info.Mode().IsRegular() {
		return false // its directory does not lead there, or would have been reported
	}
	real, err := filepath.EvalSymlinks(full)
	if err != nil || !within(real, r.Destination) {
		return false
	}
	if !r.leadIn[path] {
		r.leadIn[path] = true
		r.Warn(fmt.Sprintf("%s leads to %s, which is in DST: it is left out", full, real))
	}
	return true
}

// resolved returns an absolute path without links; its last components need not exist yet.
func resolved(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		return real, nil
	case !errors.Is(err, os.ErrNotExist) || path == "/":
		return "", err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a link to nothing", path)
	}
	parent, err := resolved(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// quiet returns how long files must stay unchanged.
func quiet(settle time.Duration, network bool) time.Duration {
	switch {
	case settle > 0:
		return settle
	case network:
		return discover.NetworkSettle
	}
	return discover.DefaultSettle
}

// Counts is the progress of a run.
type Counts struct {
	Shards    uint64 `json:"shards"`            // in SRC
	Filtered  uint64 `json:"shards_filtered"`   // in this run
	Unchanged uint64 `json:"shards_unchanged"`  // already had a result
	Dropped   uint64 `json:"shards_dropped"`    // filtered, with nothing left
	Failed    uint64 `json:"shards_failed"`     // skipped
	Removed   uint64 `json:"shards_removed"`    // deleted results whose sources are gone
	Writing   uint64 `json:"files_not_settled"` // that are being written, or may be
	Passed    uint64 `json:"files_passed_over"` // that are not shards
	UnitsIn   uint64 `json:"units_in"`          // of the filtered shards
	UnitsOut  uint64 `json:"units_out"`
	UnitsLost uint64 `json:"units_failed"` // skipped, because the filter failed on them
	Records   uint64 `json:"records_out"`
	BytesIn   int64  `json:"bytes_in"`    // size of the filtered shards' files
	BytesOut  int64  `json:"bytes_out"`   // size of their results
	Bytes     int64  `json:"bytes_done"`  // size of the shards' files done, including those that already had a result
	Total     int64  `json:"bytes_total"` // size of all shards' files
}

// Progress has the Counts of a run in progress. It is safe for concurrent use.
type Progress struct {
	mu     sync.Mutex
	counts Counts
}

// Counts returns the current counts.
func (p *Progress) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

func (p *Progress) change(f func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.counts)
}

// Failure is an error caused by the filter or by a source.
type Failure struct {
	Shard string
	Unit  string // "" for the whole shard
	Err   error
	// Source means that the shard itself is the cause: it is damaged, has changed, or can't be
	// read.
	Source bool
}

func (f *Failure) Error() string {
	if f.Unit != "" {
		return fmt.Sprintf("%s: %v", f.Unit, f.Err)
	}
	return fmt.Sprintf("%s: %v", f.Shard, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// unread reports whether the shard could not be read at all, which does not mean that it is
// damaged.
func (f *Failure) unread() bool {
	_, file := errors.AsType[*fs.PathError](f.Err)
	_, located := errors.AsType[*storage.Error](f.Err)
	return f.Source && (file || located)
}

// failed returns err as a Failure of the filter at a shard, unless ctx has ended, or err already is
// a Failure.
func failed(ctx context.Context, s *source, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*Failure](err); ok {
		return err
	}
	return &Failure{Shard: s.name(), Err: err}
}

// damaged returns err as a Failure of the shard itself.
func damaged(ctx context.Context, s *source, err error) error {
	err = failed(ctx, s, err)
	if f, ok := errors.AsType[*Failure](err); ok && f.Unit == "" {
		f.Source = true
	}
	return err
}
