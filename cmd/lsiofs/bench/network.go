package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench/service"
)

// network measures a dataset at a web server. It has the server, a bare client, and temporary
// files. It is not safe for concurrent use.
type network struct {
	program Program
	config  Config
	dir     string   // for indexes, caches and mount points
	log     *os.File // output of lsiofs
	slot    time.Duration

	local   string // the served directory
	service *part
	loop    *part
	address service.Address
	once    int // number of the server's objects that contain each of the directory's files once

	asIs     bool           // use only the configuration's flags, because the service is a third party's
	last     catRun         // the last cat that was measured
	above    float64        // its processor time above that of the bare client, in s/GiB
	asked    float64        // bytes requested in the last whole epoch per byte of its records
	passed   service.Served // requests of the last index pass
	repeated float64        // requests per chunk of the last epoch from a cache
	fills    bool           // a mount's cache is filled before its second epoch is measured
	mostAnon int64          // the most memory of lsiofs cat above --memory so far
	points   int            // number of mount points used
}

// copies is the number of names under which each file is served, so that an epoch lasts until rows
// are measured while the page cache can hold the files.
const copies = 16

func newNetwork(ctx context.Context, p Program, c Config, local string) (*network, error) {
	dir, err := os.MkdirTemp(filepath.Dir(local), ".lsiofs-network-") // on the data's disk
	if err != nil {
		return nil, err
	}
	n := &network{program: p, config: c, dir: dir, local: local}
	if err := n.start(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, ctx.Err()
}

func (n *network) start() (err error) {
	if n.log, err = os.Create(filepath.Join(n.dir, "lsiofs.log")); err != nil {
		return err
	}
	if n.service, err = startPart(n.program.Self, nil, "objects", n.local, strconv.Itoa(copies)); err != nil {
		return err
	}
	if err := n.service.hear(&n.address); err != nil {
		return err
	}
	n.once = n.address.Objects / copies
	n.loop, err = startPart(n.program.Self, nil, "loop")
	return err
}

// close ends all processes and removes everything.
func (n *network) close() error {
	for _, p := range []*part{n.service, n.loop} {
		if p != nil {
			p.kill()
		}
	}
	var err error
	if n.log != nil {
		err = n.log.Close()
	}
	return errors.Join(err, os.RemoveAll(n.dir)) // nothing is mounted in it: rows unmount what they mount
}

// served returns the requests that the server received since the last call.
func (n *network) served() (service.Served, error) {
	var s service.Served
	if n.service == nil {
		return s, nil // a third party's server does not count for us
	}
	if err := n.service.jobs.Encode(struct{}{}); err != nil {
		return s, err
	}
	return s, n.service.hear(&s)
}

// bare makes the bare client read ranges, and measures its processor time.
func (n *network) bare(ctx context.Context, ranges []service.Range, atOnce int, most time.Duration) (reading, error) {
	return n.bareBy(ctx, n.loop, ranges, atOnce, most)
}

// piped is like bare, with a client that writes what it reads to a pipe that a reader reads from,
// as lsiofs cat does.
func (n *network) piped(ctx context.Context, ranges []service.Range, atOnce int, most time.Duration) (r reading, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return r, err
	}
	defer from.Close()
	widenPipe(to)
	reads, err := startReader(n.program.Self, from)
	if err != nil {
		return r, errors.Join(err, to.Close())
	}
	defer reads.kill()
	client, err := startPart(n.program.Self, to, "loop", "pipe")
	if err = errors.Join(err, to.Close()); err != nil {
		return r, err
	}
	defer client.kill()
	if err := reads.start(readJob{Paths: []string{"/dev/fd/3"}}); err != nil {
		return r, err
	}
	if _, err := n.bareBy(ctx, client, ranges, atOnce, most/4); err != nil { // allocates its memory
		return r, err
	}
	return n.bareBy(ctx, client, ranges, atOnce, most)
}

func (n *network) bareBy(ctx context.Context, client *part, ranges []service.Range, atOnce int, most time.Duration) (reading, error) {
	stop := context.AfterFunc(ctx, func() { _ = client.cmd.Process.Kill() })
	defer stop()
	before, err := processCPU(client.cmd.Process.Pid)
	if err != nil {
		return reading{}, err
	}
	if err := client.jobs.Encode(service.Job{Address: n.address, Ranges: ranges, AtOnce: atOnce, StopAfter: most}); err != nil {
		return reading{}, err
	}
	var done service.Done
	if err := client.hear(&done); err != nil {
		return reading{}, err
	}
	if done.Error != "" {
		return reading{}, fmt.Errorf("bare client: %s", done.Error)
	}
	after, err := processCPU(client.cmd.Process.Pid)
	return reading{bytes: done.Bytes, elapsed: done.Elapsed, cpu: after - before, mallocs: -1}, err
}

// flags returns the flags of all commands in this measurement.
func (n *network) flags(more ...string) []string {
	var all []string
	if !n.asIs {
		all = []string{"--index-dir", filepath.Join(n.dir, "index"), "--connections", strconv.Itoa(connections)}
	}
	all = append(all, n.config.Flags...)
	if n.program.Caches {
		all = append(all, "--cache-size", "off")
	}
	return append(all, more...)
}

// connections is the number of concurrent requests of lsiofs and of the bare client.
const connections = 64

// chunkFlags set the size of chunks, whatever their number of records.
func chunkFlags(bytes int64) []string {
	return []string{"--chunk-bytes", strconv.FormatInt(bytes, 10), "--chunk-records", "1048576"}
}

// catRun is the result of measuring one lsiofs cat.
type catRun struct {
	reading
	ranges []service.Range // that it requested meanwhile
	anon   int64           // its largest private memory
	waited time.Duration   // the part of its time spent waiting for the first byte
}

// catPart is the part of an epoch that is measured. What arrives before settle has passed and
// before all of --memory is in use is not counted. The rest is measured for slot or up to most
// bytes. If all fields are 0, the epoch is read to its end.
type catPart struct {
	settle, slot time.Duration
	most         int64
}

// cat makes lsiofs cat write an epoch to a pipe that a reader reads from. It measures only cat's
// processor time: the reader stands for the training program.
func (n *network) cat(ctx context.Context, args []string, part catPart) (run catRun, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return run, err
	}
	defer from.Close()
	widenPipe(to)
	r, err := startReader(n.program.Self, from)
	if err != nil {
		return run, errors.Join(err, to.Close())
	}
	defer r.kill()
	if _, err := n.served(); err != nil {
		return run, errors.Join(err, to.Close())
	}
	cat, err := startCat(n.program.Lsiofs, n.flags(append(args, "--workers", "1", "--worker", "0/1")...), to, n.log)
	if err = errors.Join(err, to.Close()); err != nil {
		return run, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cat.Process.Kill() })
	defer stop()
	anon := watchAnon(cat.Process.Pid)
	run, err = n.readCat(r, cat, part)
	run.anon = anon()
	_ = cat.Process.Kill() // an error means that it has ended
	r.kill()
	werr := cat.Wait()
	if ctx.Err() != nil {
		return run, ctx.Err()
	}
	if err == nil && part == (catPart{}) && werr != nil {
		err = werr
	}
	if err != nil {
		said, _ := os.ReadFile(n.log.Name())
		err = fmt.Errorf("lsiofs cat: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return run, err
}

// readCat is the counted part of cat.
func (n *network) readCat(r *reader, cat *exec.Cmd, part catPart) (run catRun, err error) {
	if part.settle > 0 {
		done, err := r.do(readJob{Paths: []string{"/dev/fd/3"}, StopAfter: part.settle})
		if most := n.config.Spec.MemoryBytes * 5 / 4; err == nil && done.Bytes < most {
			// Its memory is slow at first, too.
			_, err = r.do(readJob{Paths: []string{"/dev/fd/3"}, PathBytes: most - done.Bytes})
		}
		if err != nil {
			return run, err
		}
		if _, err := n.served(); err != nil {
			return run, err
		}
	}
	before, err := processCPU(cat.Process.Pid)
	if err != nil {
		return run, err
	}
	done, err := r.do(readJob{Paths: []string{"/dev/fd/3"}, StopAfter: part.slot, PathBytes: part.most})
	if err != nil {
		return run, err
	}
	// This works even after its end: it is a zombie until its parent waits.
	after, err := processCPU(cat.Process.Pid)
	if err != nil {
		return run, err
	}
	served, err := n.served()
	run.reading = reading{bytes: done.Bytes, elapsed: done.Ended - done.Began, cpu: after - before, mallocs: -1}
	run.ranges, run.waited = served.Ranges, done.First-done.Began
	if err == nil && part.settle > 0 && run.elapsed < part.slot/2 {
		err = notMeasured("an epoch of %.0f GiB has come to its end before it could be measured", gib(done.Bytes))
	}
	return run, err
}

// do is start followed by finish.
func (r *reader) do(j readJob) (readDone, error) {
	if err := r.start(j); err != nil {
		return readDone{}, err
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
			if now, err := anonBytes(pid); err == nil { // otherwise it has ended
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

// command runs a command of lsiofs to its end and returns its stdout.
func (n *network) command(ctx context.Context, args ...string) ([]byte, time.Duration, error) {
	cmd := exec.CommandContext(ctx, n.program.Lsiofs, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := monotonic()
	out, err := cmd.Output()
	elapsed := monotonic() - began
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	if err != nil {
		said := ""
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			said = strings.TrimSpace(string(failed.Stderr))
		}
		return nil, 0, fmt.Errorf("lsiofs %s: %w: %s", args[0], err, said)
	}
	return out, elapsed, nil
}

// decoded is command with --json, decoded into v.
func (n *network) decoded(ctx context.Context, v any, args ...string) (time.Duration, error) {
	out, elapsed, err := n.command(ctx, append(args, "--json")...)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(out, v); err != nil {
		return 0, fmt.Errorf("lsiofs %s --json: %w", args[0], err)
	}
	return elapsed, nil
}
