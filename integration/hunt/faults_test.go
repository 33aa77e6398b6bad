package hunt

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/backing"
)

// fault is something that storage does, on a FUSE that fails on command.
type fault struct {
	name string
	do   func(h *hunter, shard int, r *rand.Rand)
	// uncached means that only an uncached file system may do it.
	uncached bool
}

// faults lists all faults.
var faults = []fault{
	{name: "EIO", do: failing(backing.EIO)},
	{name: "EINTR", do: failing(backing.EINTR)},
	{name: "short", do: failing(backing.Short), uncached: true},
	{name: "slow", do: failing(backing.Slow)},
	{name: "stalled reads", do: stallReads},
	{name: "stalled openings", do: stallOpenings},
	{name: "stalled reads and signals", do: stallReadsAndSignal},
	{name: "changed while reads stall", do: changeWhile(false)},
	{name: "changed while openings stall", do: changeWhile(true)},
	{name: "openings that fail", do: failOpenings},
}

// fuseFaults returns a fault for each file of a shard.
func (h *hunter) fuseFaults(shard int, f backing.Fault) (faults []backing.Fault) {
	for _, file := range h.d.a[shard] {
		f.Path = file.path
		faults = append(faults, f)
	}
	return faults
}

// drop evicts a shard from the page cache, so that it is read again.
func (h *hunter) drop(shard int) {
	if h.source.options == nil || h.source.options.NewInodes {
		return
	}
	for _, file := range h.d.a[shard] {
		h.fuse.Drop(file.path)
	}
}

// failing returns a fault that makes reads of a shard fail for a while.
func failing(do string) func(h *hunter, shard int, r *rand.Rand) {
	return func(h *hunter, shard int, r *rand.Rand) {
		deed := h.begin(do, false, do != backing.Slow, shard)
		h.target.Store(int64(shard))
		h.drop(shard)
		h.fuse.Fail(h.fuseFaults(shard, backing.Fault{Do: do})...)
		h.pause(time.Duration(1+r.IntN(40)) * time.Millisecond)
		h.recover(deed)
	}
}

func failOpenings(h *hunter, shard int, r *rand.Rand) {
	deed := h.begin("openings fail", false, true, shard)
	h.target.Store(int64(shard))
	h.fuse.Fail(h.fuseFaults(shard, backing.Fault{Do: backing.EIO, Open: true})...)
	h.pause(time.Duration(1+r.IntN(40)) * time.Millisecond)
	h.recover(deed)
}

// recover ends a fault. Reads that began before still get its error.
func (h *hunter) recover(d *deed) {
	h.fuse.Fail()
	h.turnsOfAll()
	h.end(d)
}

// turnsOfAll waits until each reader has ended its present turn and one more.
func (h *hunter) turnsOfAll() {
	before := make([]int64, len(h.clients))
	for i, c := range h.clients {
		before[i] = c.turns.Load()
	}
	for i, c := range h.clients {
		for h.ctx.Err() == nil && c.turns.Load() < before[i]+2 {
			time.Sleep(time.Millisecond)
		}
	}
}

// stall makes reads or openings of shards stall, waits until one of them does, and returns a
// function that ends it. It does not wait long: what is in memory is not read.
func (h *hunter) stall(open bool, some ...int) (letGo func()) {
	what := "reads stall"
	if open {
		what = "openings stall"
	}
	deed := h.begin(what, false, false, some...)
	var all []backing.Fault
	for _, shard := range some {
		h.drop(shard)
		all = append(all, h.fuseFaults(shard, backing.Fault{Do: backing.Stall, Open: open})...)
	}
	h.target.Store(int64(some[0]))
	h.fuse.Fail(all...)
	for range 100 {
		if h.ctx.Err() != nil || h.fuse.Stalled() > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return func() {
		h.fuse.Fail()
		h.end(deed)
	}
}

func stallReads(h *hunter, shard int, r *rand.Rand) {
	letGo := h.stall(false, shard)
	h.healthyGoOn("reads of another shard stall")
	letGo()
}

func stallOpenings(h *hunter, shard int, r *rand.Rand) {
	letGo := h.stall(true, shard)
	h.healthyGoOn("openings of another shard stall")
	letGo()
}

// stallReadsAndSignal sends waiting readers a signal that does not kill them.
func stallReadsAndSignal(h *hunter, shard int, r *rand.Rand) {
	letGo := h.stall(false, shard)
	h.signalReaders()
	h.pause(400 * time.Millisecond)
	letGo()
}

// signalReaders sends each reader a signal.
func (h *hunter) signalReaders() {
	for _, c := range h.clients {
		if thread := int(c.thread.Load()); thread > 0 {
			_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
		}
	}
}

// changeWhile changes a shard while reads or openings of it are under way.
func changeWhile(open bool) func(h *hunter, shard int, r *rand.Rand) {
	return func(h *hunter, shard int, r *rand.Rand) {
		letGo := h.stall(open, shard)
		c := h.drawChange(r)
		h.change(c, shard, r)
		letGo()
	}
}

// stallMany makes the openings of many shards stall while each of them is wanted. It is for a mount
// whose files have not been opened yet.
func (h *hunter) stallMany(n int, open bool) {
	some := make([]int, n)
	for i := range some {
		some[i] = i
	}
	letGo := h.stall(open, some...)
	var wanting sync.WaitGroup
	for _, shard := range some {
		c, err := h.newClient(200+shard, &reader{name: "reader of a shard that stalls"})
		if err != nil {
			h.find("%v", err)
			break
		}
		wanting.Go(func() {
			defer c.close()
			s, off := h.around(c, shard)
			fd, err := h.open(s.name)
			if err == nil {
				defer unix.Close(fd)
				_, err = h.read(c, fd, s, off, 1000)
			}
			if err != nil {
				h.find("%s: %v", c.name, err)
			}
		})
	}
	for last, same := 0, 0; same < 100 && h.ctx.Err() == nil; same++ {
		if n := h.fuse.Stalled(); n != last {
			last, same = n, 0
		}
		time.Sleep(time.Millisecond)
	}
	h.healthyGoOn(fmt.Sprintf("%d openings or reads of other shards stall", h.fuse.Stalled()))
	letGo()
	wanting.Wait()
}

// stallMappings makes more reads of mappings stall than the kernel has background requests by
// default: all its readahead consists of those. Waiting for a page may block the whole process, and
// the file, so each mapping has a process and a file of its own; each shard has a file in each
// epoch. The order is not mixed, so each file is of one shard.
func (h *hunter) stallMappings() {
	const epochs = 4
	letGo := h.stall(false, everyShard()[:targets]...)
	var wanting sync.WaitGroup
	for epoch := range epochs {
		for shard := range targets {
			s := *h.streams[shard]
			s.name = strings.Replace(s.name, "epoch-0", fmt.Sprint("epoch-", epoch), 1)
			m, err := startMapper()
			if err != nil {
				h.find("%v", err)
				break
			}
			wanting.Go(func() {
				defer m.close()
				o := h.mapOrder(&s, 0, 1, false)
				began := time.Since(h.start)
				answers, err := m.read(o)
				if err == nil {
					err = h.judgeMapped(&s, o, answers[0], began)
				}
				if err != nil {
					h.find("reader of a mapping that stalls: %v", err)
				}
			})
		}
	}
	h.pause(500 * time.Millisecond) // for most of them to get there
	h.healthyGoOn(fmt.Sprintf("%d mappings wait", epochs*targets))
	letGo()
	wanting.Wait()
}

// forget makes the kernel forget files, as it does when memory is short.
func (h *hunter) forget(shard int) {
	for _, file := range h.d.a[shard] {
		h.fuse.Forget(file.path)
	}
	h.begin("forgotten by the kernel", false, false, shard)
	h.target.Store(int64(shard))
}

// spoil overwrites parts of the spool, which only the server has open, like a disk that loses
// written data.
func (h *hunter) spoil(r *rand.Rand) {
	dir := fmt.Sprintf("/proc/%d/fd", h.server.Cmd.Process.Pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		h.find("%v", err)
		return
	}
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, h.spool) {
			continue
		}
		h.begin("the spool is spoilt", false, true, everyShard()...)
		err := writing(path, func(f *os.File) error {
			info, err := f.Stat()
			if err != nil {
				return err
			}
			for range 1 + r.IntN(20) {
				spoilt := make([]byte, 1+r.IntN(100_000))
				if r.IntN(2) == 0 {
					fill(spoilt, 0xff, 0, versionB)
				}
				if info.Size() > int64(len(spoilt)) {
					if _, err := f.WriteAt(spoilt, r.Int64N(info.Size()-int64(len(spoilt)))); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			h.find("the spool can't be spoilt: %v", err)
		}
		h.spoilt = true
	}
}

func everyShard() []int {
	all := make([]int, shards)
	for i := range all {
		all[i] = i
	}
	return all
}
