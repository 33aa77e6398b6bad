package gate

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/integration/bench/service"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// network measures a dataset at a web server. It has the server, a bare client, and temporary
// files. It is not safe for concurrent use.
type network struct {
	bench.Cats        // its directory has indexes, caches and mount points, too
	local      string // the served directory
	service    *bench.Process
	loop       *bench.Process
	address    service.Address
	once       int // number of the server's objects that contain each of the directory's files once

	ranges   []service.Range // requests of the cat that was measured last
	last     networkCat      // the last cat that was measured
	above    float64         // its processor time above that of the bare client, in s/GiB
	asked    float64         // bytes requested in the last whole epoch per byte of its records
	passed   service.Served  // requests of the last index pass
	repeated float64         // requests per chunk of the last epoch from a cache
	fills    bool            // a mount's cache is filled before its second epoch is measured
	mostAnon int64           // the most memory of lsiofs cat above --memory so far
	points   int             // number of mount points used
}

// copies is the number of names under which each file is served, so that an epoch lasts until rows
// are measured while the page cache can hold the files.
const copies = 16

func newNetwork(ctx context.Context, p bench.Program, c bench.Config, local string) (*network, error) {
	dir, err := os.MkdirTemp(filepath.Dir(local), ".lsiofs-network-") // on the data's disk
	if err != nil {
		return nil, err
	}
	n := &network{local: local, Cats: bench.Cats{
		Program: p, Config: c, Dir: dir,
		Own: []string{"--index-dir", filepath.Join(dir, "index"), "--connections", strconv.Itoa(connections)},
	}}
	n.Begin = func() error {
		_, err := n.served()
		return err
	}
	n.End = func() error {
		served, err := n.served()
		n.ranges = served.Ranges
		return err
	}
	if err := n.start(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, ctx.Err()
}

func (n *network) start() (err error) {
	if err := n.OpenLog(); err != nil {
		return err
	}
	if n.service, err = bench.StartProcess(n.Program.Self, nil, "objects", n.local, strconv.Itoa(copies)); err != nil {
		return err
	}
	if err := n.service.Hear(&n.address); err != nil {
		return err
	}
	n.once = n.address.Objects / copies
	n.loop, err = bench.StartProcess(n.Program.Self, nil, "loop")
	return err
}

// close ends all processes and removes everything.
func (n *network) close() error {
	for _, p := range []*bench.Process{n.service, n.loop} {
		if p != nil {
			p.Kill()
		}
	}
	return n.Cats.Close()
}

// networkCat is the result of measuring one lsiofs cat of a web server.
type networkCat struct {
	bench.CatRun
	ranges []service.Range // that it requested meanwhile
}

// cat measures one lsiofs cat.
func (n *network) cat(ctx context.Context, args []string, part bench.CatPart) (networkCat, error) {
	n.ranges = nil
	run, err := n.Cats.Cat(ctx, args, part)
	return networkCat{run, n.ranges}, err
}

// served returns the requests that the server received since the last call.
func (n *network) served() (service.Served, error) {
	var s service.Served
	if err := n.service.Jobs.Encode(struct{}{}); err != nil {
		return s, err
	}
	return s, n.service.Hear(&s)
}

// bare makes the bare client read ranges, and measures its processor time.
func (n *network) bare(ctx context.Context, ranges []service.Range, atOnce int, most time.Duration) (bench.Reading, error) {
	return n.bareBy(ctx, n.loop, ranges, atOnce, most)
}

// piped is like bare, with a client that writes what it reads to a pipe that a reader reads from,
// as lsiofs cat does.
func (n *network) piped(ctx context.Context, ranges []service.Range, atOnce int, most time.Duration) (r bench.Reading, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return r, err
	}
	defer from.Close()
	bench.WidenPipe(to)
	reads, err := bench.StartReader(n.Program.Self, from)
	if err != nil {
		return r, errors.Join(err, to.Close())
	}
	defer reads.Kill()
	client, err := bench.StartProcess(n.Program.Self, to, "loop", "pipe")
	if err = errors.Join(err, to.Close()); err != nil {
		return r, err
	}
	defer client.Kill()
	if err := reads.Start(bench.ReadJob{Paths: []string{"/dev/fd/3"}}); err != nil {
		return r, err
	}
	if _, err := n.bareBy(ctx, client, ranges, atOnce, most/4); err != nil { // allocates its memory
		return r, err
	}
	return n.bareBy(ctx, client, ranges, atOnce, most)
}

func (n *network) bareBy(ctx context.Context, client *bench.Process, ranges []service.Range, atOnce int, most time.Duration) (bench.Reading, error) {
	stop := context.AfterFunc(ctx, func() { _ = client.Cmd.Process.Kill() })
	defer stop()
	before, err := bench.ProcessCPU(client.Cmd.Process.Pid)
	if err != nil {
		return bench.Reading{}, err
	}
	if err := client.Jobs.Encode(service.Job{Address: n.address, Ranges: ranges, AtOnce: atOnce, StopAfter: most}); err != nil {
		return bench.Reading{}, err
	}
	var done service.Done
	if err := client.Hear(&done); err != nil {
		return bench.Reading{}, err
	}
	if done.Error != "" {
		return bench.Reading{}, fmt.Errorf("bare client: %s", done.Error)
	}
	after, err := bench.ProcessCPU(client.Cmd.Process.Pid)
	return bench.Reading{Bytes: done.Bytes, Elapsed: done.Elapsed, CPU: after - before, Mallocs: -1}, err
}

// connections is the number of concurrent requests of lsiofs and of the bare client.
const connections = 64

// chunkFlags set the size of chunks, whatever their number of records.
func chunkFlags(bytes int64) []string {
	return []string{"--chunk-bytes", strconv.FormatInt(bytes, 10), "--chunk-records", "1048576"}
}

// command runs a command of lsiofs to its end and returns its stdout.
func (n *network) command(ctx context.Context, args ...string) ([]byte, time.Duration, error) {
	cmd := exec.CommandContext(ctx, n.Program.Lsiofs, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := bench.Monotonic()
	out, err := cmd.Output()
	elapsed := bench.Monotonic() - began
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

// network checks the promises about datasets at services, with a web server on this machine that
// delays its answers.
func (k *check) network(ctx context.Context) error {
	if !k.config.wants(SectionNetwork) || k.config.Spec.Dataset != "" {
		return nil
	}
	c := k.config.Config
	if c.Rows = rowsOf(k.config.Promises, SectionNetwork); len(c.Rows) == 0 {
		return nil
	}
	path := filepath.Join(k.dir, "network-56000")
	// As many shards as the index reads at a time.
	if err := k.make(ctx, Make{Dir: path, Shape: synthetic.Shape{Format: "tar", RecordBytes: 12500}, Records: 56_000, Shards: passStreams}); err != nil {
		return err
	}
	r, err := runNetwork(ctx, k.program, c, path)
	if err != nil {
		return err
	}
	k.report.Reports = append(k.report.Reports, r)
	for _, p := range k.config.Promises {
		if p.Section == SectionNetwork {
			k.add(p.judge(r.Rows))
		}
	}
	if k.config.Dir == "" {
		return os.RemoveAll(path)
	}
	return nil
}

// networkSlot is how long each row for a web server is measured.
const networkSlot = 3 * time.Second

// runNetwork measures a directory's files served by a web server.
func runNetwork(ctx context.Context, p bench.Program, c bench.Config, local string) (report bench.Report, err error) {
	n, err := newNetwork(ctx, p, c, local)
	if err != nil {
		return bench.Report{}, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	n.Slot = networkSlot
	s := c.Spec
	s.Dataset, s.IndexDir = n.address.Dataset(n.address.Objects), filepath.Join(n.Dir, "index")
	s = withoutCache(s)
	d, err := p.Open(ctx, s) // this also indexes it for all commands
	if err != nil {
		return bench.Report{}, err
	}
	report = bench.Report{Machine: bench.ThisMachine(local, p.Version), Dataset: bench.Describe(d)}
	report.Dataset.MeasuredBytes = report.Dataset.StreamBytes
	if err := d.Close(); err != nil {
		return bench.Report{}, err
	}
	rows := n.rows()
	r := bench.Rounds{Most: c.Rounds, Total: c.Total, Progress: c.Tell}
	if report.Rounds, err = r.Run(ctx, rows); err != nil {
		return bench.Report{}, err
	}
	report.Rows = bench.Results(rows, report.Dataset.RecordBytes)
	return report, nil
}

// programBytes returns the size of a program without symbols and debugging information, which
// releases leave out (go build -ldflags "-s -w"): it subtracts the sections of the file that are
// not loaded.
func programBytes(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	f, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	left := st.Size()
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_ALLOC == 0 {
			left -= int64(s.FileSize)
		}
	}
	return left, nil
}
