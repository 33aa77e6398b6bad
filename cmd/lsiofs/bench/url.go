package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// Rows for a dataset at a bucket or web server.
const (
	rowURLBare  = "bare-requests"
	rowURLCat   = "cat"
	rowURLAgain = "cat-from-cache"
)

// RunURL measures a dataset at a bucket or web server: its streams, compared with bare requests of
// the same size. It transfers what arrives in the configured time. When ctx ends, it removes
// everything and returns ctx's error.
func RunURL(ctx context.Context, p Program, c Config) (report Report, err error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	u := &url{Cats: Cats{Program: p, Config: c}}
	if u.Dir, err = os.MkdirTemp("", "lsiofs-bench-"); err != nil {
		return Report{}, err
	}
	defer func() {
		if err = errors.Join(err, u.Close()); ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	if err := u.OpenLog(); err != nil {
		return Report{}, err
	}
	s := c.Spec
	s.Cache.Off = true       // this process reads no data
	d, err := p.Open(ctx, s) // this also indexes it for all commands
	if err != nil {
		return Report{}, err
	}
	report = Report{Machine: ThisMachine(u.Dir, p.Version), Dataset: Describe(d)}
	report.Dataset.MeasuredBytes = report.Dataset.StreamBytes
	if err := d.Close(); err != nil {
		return Report{}, err
	}
	rows := u.rows()
	u.Slot = c.Total / time.Duration((len(rows)+1)*c.Rounds) // the last row reads twice
	r := Rounds{Most: c.Rounds, Total: c.Total, Progress: c.Tell}
	if report.Rounds, err = r.Run(ctx, rows); err != nil {
		return Report{}, err
	}
	report.Rows = Results(rows, report.Dataset.RecordBytes)
	report.Notes = append(report.Notes, fmt.Sprintf("each row reads for %v, or to the end of the epoch if that comes first; only the row \"from the disk cache\" has a cache", u.Slot.Round(100*time.Millisecond)))
	return report, nil
}

// url measures a dataset at a third-party service.
type url struct {
	Cats
	filled int // number of caches filled so far
}

func (u *url) rows() []*Measurement {
	s := &u.Config.Spec
	l := &Measurements{Only: u.Config.Rows}
	l.Add(Measurement{
		ID: rowURLBare, Name: fmt.Sprintf("bare requests of %d KiB, %d at a time", s.Order.ChunkBytes>>10, s.Remote.Connections), NoRecords: true, Measure: u.bareRequests,
	})
	l.Add(Measurement{ID: rowURLCat, Name: "cat | reader, without a cache", Against: rowURLBare, Measure: u.catFor})
	l.Add(Measurement{ID: rowURLAgain, Name: "cat | reader, the same again, from the disk cache", Against: rowURLBare, Measure: u.fromCache})
	return l.Rows
}

// bareRequests requests ranges of the size of chunks at random places and discards them.
func (u *url) bareRequests(ctx context.Context) (r Reading, err error) {
	s := &u.Config.Spec
	service, err := probe.Open(ctx, s.Dataset, probe.Options{
		Region: s.Remote.Region, Endpoint: s.Remote.Endpoint, Addressing: string(s.Remote.Addressing), Anonymous: s.Remote.Anonymous, RequesterPays: s.Remote.RequesterPays,
		CAFile: s.Remote.CAFile, AuthFile: s.Remote.AuthFile, Unversioned: s.Remote.Unversioned,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	objects, err := service.Objects(ctx)
	if err != nil {
		return r, err
	}
	before, err := ProcessCPU(os.Getpid())
	if err != nil {
		return r, err
	}
	each := min(int64(s.Order.ChunkBytes), objects[0].SizeBytes) // of the largest object
	rates, err := service.Rates(ctx, probe.Plan{ReadBytes: []int64{each}, Depths: []int{s.Remote.Connections}, Duration: u.Slot})
	if err != nil {
		return r, err
	}
	after, err := ProcessCPU(os.Getpid())
	return Reading{Bytes: rates.Bytes, Elapsed: time.Duration(rates.Seconds * float64(time.Second)), CPU: after - before, Mallocs: -1}, err
}

// catFor measures a cat for some time after the number of its requests has settled, or a whole
// epoch if it is over before that.
func (u *url) catFor(ctx context.Context) (Reading, error) {
	args := []string{u.Config.Spec.Dataset}
	run, err := u.Cat(ctx, args, CatPart{Settle: u.Slot / 4, Slot: u.Slot * 3 / 4})
	if errors.Is(err, ErrNotMeasured) {
		run, err = u.Cat(ctx, args, CatPart{})
	}
	return run.steady(), err
}

// fromCache reads the beginning of an epoch twice and measures the second time.
func (u *url) fromCache(ctx context.Context) (r Reading, err error) {
	if !u.Program.Caches {
		return r, NotMeasured("there is no --cache-dir")
	}
	u.filled++
	dir := filepath.Join(u.Dir, "cache-"+strconv.Itoa(u.filled))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := []string{u.Config.Spec.Dataset, "--cache-dir", dir, "--cache-size", "50%"}
	first, err := u.Cat(ctx, args, CatPart{Slot: u.Slot})
	if err != nil {
		return r, err
	}
	again, err := u.Cat(ctx, args, CatPart{most: first.Bytes})
	return again.steady(), err
}

// Cats measures lsiofs cat, which writes to a reader through a pipe. It is not safe for concurrent
// use.
type Cats struct {
	Program Program
	Config  Config
	Dir     string   // temporary
	Log     *os.File // output of lsiofs
	Slot    time.Duration
	Own     []string // flags that come before those of the configuration

	// Begin and end, if not nil, are called when what is measured begins, perhaps more than once,
	// and when it has ended.
	Begin, End func() error
}

// OpenLog creates the log.
func (n *Cats) OpenLog() (err error) {
	n.Log, err = os.Create(filepath.Join(n.Dir, "lsiofs.log"))
	return err
}

// Close removes everything.
func (n *Cats) Close() error {
	var err error
	if n.Log != nil {
		err = n.Log.Close()
	}
	return errors.Join(err, os.RemoveAll(n.Dir)) // nothing is mounted in it: rows unmount what they mount
}

// Flags returns the flags of all commands in this measurement.
func (n *Cats) Flags(more ...string) []string {
	all := append(slices.Clone(n.Own), n.Config.Flags...)
	if n.Program.Caches {
		all = append(all, "--cache-size", "off")
	}
	return append(all, more...)
}

func hook(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// CatRun is the result of measuring one lsiofs cat.
type CatRun struct {
	Reading
	Anon   int64         // its largest private memory
	waited time.Duration // the part of its time spent waiting for the first byte
}

// steady returns the reading without the time before the first byte.
func (r CatRun) steady() Reading {
	r.Elapsed -= r.waited
	return r.Reading
}

// CatPart is the part of an epoch that is measured. What arrives before settle has passed and
// before all of --memory is in use is not counted. The rest is measured for slot or up to most
// bytes. If all fields are 0, the epoch is read to its end.
type CatPart struct {
	Settle, Slot time.Duration
	most         int64
}

// Cat makes lsiofs cat write an epoch to a pipe that a reader reads from. It measures only cat's
// processor time: the reader stands for the training program.
func (n *Cats) Cat(ctx context.Context, args []string, part CatPart) (run CatRun, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return run, err
	}
	defer from.Close()
	WidenPipe(to)
	r, err := StartReader(n.Program.Self, from)
	if err != nil {
		return run, errors.Join(err, to.Close())
	}
	defer r.Kill()
	if err := hook(n.Begin); err != nil {
		return run, errors.Join(err, to.Close())
	}
	cat, err := startCat(n.Program.Lsiofs, n.Flags(append(args, "--workers", "1", "--worker", "0/1")...), to, n.Log)
	if err = errors.Join(err, to.Close()); err != nil {
		return run, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cat.Process.Kill() })
	defer stop()
	anon := watchAnon(cat.Process.Pid)
	run, err = n.readCat(r, cat, part)
	run.Anon = anon()
	_ = cat.Process.Kill() // an error means that it has ended
	r.Kill()
	werr := cat.Wait()
	if ctx.Err() != nil {
		return run, ctx.Err()
	}
	if err == nil && part == (CatPart{}) && werr != nil {
		err = werr
	}
	if err != nil {
		said, _ := os.ReadFile(n.Log.Name())
		err = fmt.Errorf("lsiofs cat: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return run, err
}

// readCat is the counted part of cat.
func (n *Cats) readCat(r *reader, cat *exec.Cmd, part CatPart) (run CatRun, err error) {
	if part.Settle > 0 {
		done, err := r.Do(ReadJob{Paths: []string{"/dev/fd/3"}, StopAfter: part.Settle})
		if most := n.Config.Spec.MemoryBytes * 5 / 4; err == nil && done.Bytes < most {
			// Its memory is slow at first, too.
			_, err = r.Do(ReadJob{Paths: []string{"/dev/fd/3"}, PathBytes: most - done.Bytes})
		}
		if err != nil {
			return run, err
		}
		if err := hook(n.Begin); err != nil {
			return run, err
		}
	}
	before, err := ProcessCPU(cat.Process.Pid)
	if err != nil {
		return run, err
	}
	done, err := r.Do(ReadJob{Paths: []string{"/dev/fd/3"}, StopAfter: part.Slot, PathBytes: part.most})
	if err != nil {
		return run, err
	}
	// This works even after its end: it is a zombie until its parent waits.
	after, err := ProcessCPU(cat.Process.Pid)
	if err != nil {
		return run, err
	}
	err = hook(n.End)
	run.Reading = Reading{Bytes: done.Bytes, Elapsed: done.Ended - done.Began, CPU: after - before, Mallocs: -1}
	run.waited = done.First - done.Began
	if err == nil && part.Settle > 0 && run.Elapsed < part.Slot/2 {
		err = NotMeasured("the epoch of %.0f GiB ended before it could be measured", GiB(done.Bytes))
	}
	return run, err
}

// Do is start followed by finish.
func (r *reader) Do(j ReadJob) (ReadDone, error) {
	if err := r.Start(j); err != nil {
		return ReadDone{}, err
	}
	return r.finish()
}

// anonEvery is the interval at which a process's memory is sampled.
const anonEvery = 20 * time.Millisecond

// watchAnon samples the anonymous memory of a process until most is called, which returns the
// largest sample.
func watchAnon(pid int) (most func() int64) {
	end := make(chan struct{})
	var bytes int64
	var watching sync.WaitGroup
	watching.Go(func() {
		t := time.NewTicker(anonEvery)
		defer t.Stop()
		for {
			if now, err := AnonBytes(pid); err == nil { // otherwise it has ended
				bytes = max(bytes, now)
			}
			select {
			case <-t.C:
			case <-end:
				return
			}
		}
	})
	return func() int64 {
		close(end)
		watching.Wait()
		return bytes
	}
}
