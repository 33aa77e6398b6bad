package hunt

import (
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// writer is an `lsiofs cat` whose output the test reads.
type writer struct {
	s      *stream
	cmd    *exec.Cmd
	out    io.ReadCloser
	stderr *serve.Log
}

// huntCat lets programs write streams while shards are changed: each output is a prefix of the
// stream, and all of it if the program reports success.
func (h *hunter) huntCat(s schedule) {
	r := rand.New(rand.NewPCG(s.seed, 4))
	plan := h.everyChange(r)
	h.prepare(plan)
	deal := h.order.deals()[0]
	var writers []*writer
	for w := range min(deal[1], 8) {
		writers = append(writers, h.startCat(h.streams[w], w, deal[1]))
	}
	var comparing sync.WaitGroup
	for i, w := range writers {
		if w == nil {
			continue
		}
		// The first bytes come when all shards have been indexed.
		first := make([]byte, 1)
		if _, err := io.ReadFull(w.out, first); err != nil {
			h.find("cat of %s: %v: %s", w.s.name, err, w.stderr)
		} else if first[0] != w.s.bytes[0] {
			h.find("cat of %s: its first byte is wrong", w.s.name)
		}
		own := rand.New(rand.NewPCG(s.seed, uint64(10+i)))
		comparing.Go(func() { h.compareCat(w, own) })
	}
	for _, p := range plan {
		h.change(p.change, p.shard, p.draws())
		h.pause(time.Duration(r.IntN(10)) * time.Millisecond)
	}
	comparing.Wait()
	if s.again && len(h.findings.texts) == 0 {
		h.again()
	}
}

func (h *hunter) startCat(s *stream, worker, workers int) *writer {
	// Workers are a flag of mount: cat takes their number together with the worker's.
	args := strings.Fields(strings.Replace(strings.Join(h.arguments("cat", h.dir), " "), " --workers "+strconv.Itoa(workers), "", 1))
	w := &writer{s: s, stderr: serve.NewLog()}
	w.cmd = exec.Command(lsiofs, append(args, "--worker", strconv.Itoa(worker)+"/"+strconv.Itoa(workers))...)
	w.cmd.Env = environmentIn(h.tmp)
	w.cmd.Stderr = w.stderr
	var err error
	if w.out, err = w.cmd.StdoutPipe(); err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		h.find("cat: %v", err)
		return nil
	}
	process := w.cmd.Process
	h.t.Cleanup(func() { process.Kill() })
	return w
}

// compareCat reads a program's output, with pauses.
func (h *hunter) compareCat(w *writer, r *rand.Rand) {
	buf := make([]byte, 32<<10)
	off := int64(1)
	for {
		began := time.Since(h.start)
		n, err := w.out.Read(buf)
		if n > 0 {
			h.reads.Add(1)
			h.bytes.Add(int64(n))
			if err := h.judge(w.s, off, buf[:n], began, "cat"); err != nil {
				h.find("cat: %v", err)
			}
			off += int64(n)
		}
		if err != nil {
			break
		}
		time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
	}
	switch err := w.cmd.Wait(); {
	case err == nil && off != w.s.size():
		h.find("cat of %s ended without an error at %d of %d", w.s.name, off, w.s.size())
	case err != nil && !h.excuses(w.s.shard, 0):
		h.find("cat of %s: %v: %s", w.s.name, err, w.stderr)
	case err != nil:
		h.errors.Add(1)
	}
}
