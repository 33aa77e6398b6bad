package hunt

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nuisance is something that changes no shard, and that readers must not notice except by waiting.
type nuisance struct {
	name string
	do   func(h *hunter, r *rand.Rand)
}

// nuisances lists all nuisances.
var nuisances = []nuisance{
	{"the server stops for a while", stopServer},
	{"readers get signals", func(h *hunter, _ *rand.Rand) { h.signalReaders() }},
	{"pages are evicted", evict},
	{"a position is restored", restore},
	{"the position is saved", save},
	{"a program is killed", killProgram},
	{"status is read", lookAround},
}

func stopServer(h *hunter, r *rand.Rand) {
	h.signalServer(syscall.SIGSTOP)
	h.pause(time.Duration(r.IntN(30)) * time.Millisecond)
	h.signalServer(syscall.SIGCONT)
}

func (h *hunter) signalServer(s syscall.Signal) {
	if err := h.server.Cmd.Process.Signal(s); err != nil {
		h.find("signal %v: %v", s, err)
	}
}

func evict(h *hunter, r *rand.Rand) {
	shard := r.IntN(shards)
	h.evict(h.behind, shard)
	if h.fuse != nil {
		h.evict(h.dir, shard)
	}
}

// evict evicts a shard's pages from the page cache.
func (h *hunter) evict(dir string, shard int) {
	for _, file := range h.d.a[shard] {
		f, err := os.OpenFile(filepath.Join(dir, file.path), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // it is gone
		}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			_ = f.Sync() // dirty pages would stay
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		f.Close()
	}
	h.end(h.begin("pages are evicted", false, false, shard))
}

// restore restores the beginning of an epoch.
func restore(h *hunter, r *rand.Rand) {
	h.view.Lock()
	defer h.view.Unlock()
	epoch := r.IntN(2)
	f, err := os.OpenFile(filepath.Join(h.point, "checkpoint"), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, `{"epoch": %d}`, epoch)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		h.find("restore: %v", err)
		return
	}
	h.epoch = epoch
	h.restores++
	h.end(h.begin(fmt.Sprintf("restored to epoch %d", epoch), false, false))
}

func save(h *hunter, _ *rand.Rand) {
	if b, err := os.ReadFile(filepath.Join(h.point, "checkpoint")); err != nil || len(b) == 0 {
		h.find("checkpoint: %d bytes, %v", len(b), err)
	}
}

func lookAround(h *hunter, _ *rand.Rand) {
	for _, name := range []string{"status", "status.json", "metrics", "dataset.json"} {
		if b, err := os.ReadFile(filepath.Join(h.point, name)); err != nil || len(b) == 0 {
			h.find("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// killProgram starts cat on a stream, and kills it somewhere in between.
func killProgram(h *hunter, r *rand.Rand) {
	s := h.streams[r.IntN(len(h.streams))]
	cat := exec.Command("cat", filepath.Join(h.point, s.name))
	out, err := cat.StdoutPipe()
	if err == nil {
		err = cat.Start()
	}
	if err != nil {
		h.find("cat: %v", err)
		return
	}
	began := time.Since(h.start)
	got, _ := io.ReadAll(io.LimitReader(out, r.Int64N(1<<20)+1))
	_ = cat.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cat.Wait()
	if err := h.judge(s, 0, got, began, "cat"); err != nil {
		h.find("cat: %v", err)
	}
}
