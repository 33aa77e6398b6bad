package hunt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reader is a loop that reads streams of a mount until the schedule ends.
type reader struct {
	name string
	turn func(h *hunter, c *client) error
}

// client is the state of a reader between turns.
type client struct {
	*reader
	r      *rand.Rand
	buf    []byte  // a mapping, so that reads into it are not split for alignment
	mapper *mapper // nil until it is needed
	stream *stream // the stream that readOn reads, or nil, and its progress
	fd     int
	off    int64
	thread atomic.Int64 // the thread it runs on, 0 if it does not run
	turns  atomic.Int64
}

// readers all run at once. Four of them read near the shard that is being acted on.
var readers = []reader{
	{"reader where it happens", readTarget}, {"reader where it happens", readTarget},
	{"reader where it happens", readTarget}, {"reader where it happens", readTarget},
	{"reader front to back", readOn},
	{"reader of a mapping", readMapping},
	{"reader of a worker file", readWorkerFile},
	{healthyReader, readHealthy}, {healthyReader, readHealthy},
	{healthyMapper, readHealthyMapping},
}

const (
	healthyReader = "reader of healthy shards"
	healthyMapper = "reader of mappings of healthy shards"
)

const (
	// largestRead is the largest read that is a single FUSE request.
	largestRead = 1 << 20
	// turnBytes bounds what a turn reads, so that waiting for turns does not take long.
	turnBytes = 512 << 10
)

// newClient makes client n of a schedule.
func (h *hunter) newClient(n int, r *reader) (*client, error) {
	c := &client{reader: r, r: rand.New(rand.NewPCG(h.seed, uint64(n)))}
	var err error
	c.buf, err = unix.Mmap(-1, 0, largestRead, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return c, err
}

func (c *client) close() {
	c.leave()
	_ = unix.Munmap(c.buf)
	if c.mapper != nil {
		c.mapper.close()
	}
}

// run takes turns until ctx ends.
func (c *client) run(ctx context.Context, h *hunter) {
	runtime.LockOSThread() // so that signals reach it
	defer runtime.UnlockOSThread()
	c.thread.Store(int64(unix.Gettid()))
	defer c.thread.Store(0)
	for ctx.Err() == nil {
		if err := c.turn(h, c); err != nil {
			h.find("%s: %v", c.name, err)
			return
		}
		c.turns.Add(1)
	}
}

// sizeOfRead draws the size of a client's reads.
func (c *client) sizeOfRead() int {
	most := []int{64, 4096, 64 << 10, 128 << 10, 256 << 10, largestRead}[c.r.IntN(6)]
	if c.r.IntN(2) == 0 {
		return most
	}
	return 1 + c.r.IntN(most)
}

// open opens a stream of the mount.
func (h *hunter) open(name string) (int, error) {
	fd, err := unix.Open(filepath.Join(h.point, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	h.opened.Add(1)
	return fd, nil
}

// read reads once from an open file of a stream, and judges the reply. came is how many bytes were
// right, 0 for an error that is justified.
func (h *hunter) read(c *client, fd int, s *stream, off int64, n int) (came int, err error) {
	n = min(n, len(c.buf))
	began := time.Since(h.start)
	clear(c.buf[:min(n, 64)])
	got, err := unix.Pread(fd, c.buf[:n], off)
	h.reads.Add(1)
	if err != nil {
		return 0, h.judgeError(s, off, n, began, err, unix.EIO)
	}
	if want := max(0, min(int64(n), s.size()-off)); int64(got) != want {
		return 0, fmt.Errorf("%s: a read of %d bytes at %d gave %d, want %d%s", s.name, n, off, got, want, h.tell(s.needs(off, off+int64(n))))
	}
	h.bytes.Add(int64(got))
	return got, h.judge(s, off, c.buf[:got], began, "read")
}

// judge returns an error if bytes are wrong.
func (h *hunter) judge(s *stream, off int64, got []byte, began time.Duration, how string) error {
	if wrong := s.differs(off, got); wrong != "" {
		return fmt.Errorf("WRONG BYTES WITHOUT AN ERROR: %s: %s of [%d, %d), begun %v ago: %s%s",
			s.name, how, off, off+int64(len(got)), (time.Since(h.start) - began).Round(time.Microsecond), wrong, h.tell(s.needs(off, off+int64(len(got)))))
	}
	return nil
}

// judgeError returns an error if a read's error is not justified.
func (h *hunter) judgeError(s *stream, off int64, n int, began time.Duration, err error, may unix.Errno) error {
	needs := s.needs(off, off+int64(n))
	if errors.Is(err, may) && h.excuses(needs, began) {
		h.errors.Add(1)
		return nil
	}
	return fmt.Errorf("%s: a read of %d bytes at %d failed after %v: %w; it needs shards %v, and nothing that was done to them is a reason%s",
		s.name, n, off, (time.Since(h.start) - began).Round(time.Microsecond), err, compact(needs), h.tell(needs))
}

func compact(shards []int) (distinct []int) {
	for _, shard := range shards {
		if len(distinct) == 0 || distinct[len(distinct)-1] != shard {
			distinct = append(distinct, shard)
		}
	}
	return distinct[:min(len(distinct), 20)]
}

// around returns a stream, and the offset of a record of a shard in it.
func (h *hunter) around(c *client, shard int) (*stream, int64) {
	for {
		s := h.streams[c.r.IntN(len(h.streams))]
		if of := s.of[shard]; len(of) > 0 {
			return s, s.offsets[of[c.r.IntN(len(of))]]
		}
	}
}

// readTarget reads some pieces around a record of the target shard.
func readTarget(h *hunter, c *client) error {
	s, off := h.around(c, int(h.target.Load()))
	fd, err := h.open(s.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n := c.sizeOfRead()
	off = max(0, off-int64(c.r.IntN(n+1)/2))
	begin := off
	for range 1 + c.r.IntN(8) {
		if off >= s.size() || off > begin+turnBytes {
			break
		}
		if _, err := h.read(c, fd, s, off, n); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// readOn reads a stream from front to back, a part of it each turn.
func readOn(h *hunter, c *client) (err error) {
	if c.stream == nil {
		c.stream, c.off = h.streams[c.r.IntN(len(h.streams))], 0
		if c.fd, err = h.open(c.stream.name); err != nil {
			c.stream = nil
			return err
		}
	}
	n := max(16<<10, c.sizeOfRead())
	for end := min(c.off+turnBytes, c.stream.size()); c.off < end; c.off += int64(n) {
		if _, err := h.read(c, c.fd, c.stream, c.off, n); err != nil {
			return err
		}
	}
	if c.off >= c.stream.size() || c.r.IntN(16) == 0 {
		c.leave()
	}
	return nil
}

// leave closes the file that readOn has open.
func (c *client) leave() {
	if c.stream != nil {
		_ = unix.Close(c.fd)
		c.stream = nil
	}
}

// readMapping reads a mapping around a record of the target shard.
func readMapping(h *hunter, c *client) error {
	s, off := h.around(c, int(h.target.Load()))
	return h.readMapped(c, s, off, min(int64(c.sizeOfRead()), 128<<10), c.r.IntN(2) == 0)
}

func (h *hunter) readMapped(c *client, s *stream, off, n int64, alone bool) (err error) {
	if c.mapper == nil {
		if c.mapper, err = startMapper(); err != nil {
			return err
		}
	}
	o := h.mapOrder(s, off, n, alone)
	began := time.Since(h.start)
	answers, err := c.mapper.read(o)
	if err != nil {
		return err
	}
	return h.judgeMapped(s, o, answers[0], began)
}

func (h *hunter) mapOrder(s *stream, off, n int64, alone bool) mapOrder {
	// Otherwise the kernel would serve pages that it has read once forever.
	return mapOrder{Path: filepath.Join(h.point, s.name), Size: s.size(), Off: off, End: min(off+n, s.size()), Alone: alone, Anew: true}
}

// readHealthy reads records of shards that are never changed, which must succeed.
func readHealthy(h *hunter, c *client) error {
	s, off := h.around(c, targets+c.r.IntN(healthy))
	fd, err := h.open(s.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	end := s.healthyUntil(off)
	n := c.sizeOfRead()
	for range 30 {
		if off >= end {
			break
		}
		if _, err := h.read(c, fd, s, off, int(min(int64(n), end-off))); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// healthyUntil returns the offset where the run of records of healthy shards from off on ends.
func (s *stream) healthyUntil(off int64) int64 {
	i := s.record(off)
	for i < len(s.shard) && s.shard[i] >= targets {
		i++
	}
	return s.offsets[i]
}

// readHealthyMapping maps streams that only consist of healthy shards: while a mapping of a file
// waits for a page, the kernel lets no other process map that file. A mixed order has no such
// streams.
func readHealthyMapping(h *hunter, c *client) error {
	if h.order.mixed {
		return nil
	}
	s := h.streams[c.r.IntN(len(h.streams))]
	for slices.Min(s.shard) < targets {
		s = h.streams[c.r.IntN(len(h.streams))]
	}
	return h.readMapped(c, s, c.r.Int64N(s.size()), 128<<10, c.r.IntN(2) == 0)
}

// readWorkerFile reads a file that a restore makes stale.
func readWorkerFile(h *hunter, c *client) error {
	h.view.RLock()
	restores := h.restores
	s := h.workerStream(h.epoch, c.r)
	_, name, _ := strings.Cut(s.name, "/")
	name, _, _ = strings.Cut(name, "-of-")
	fd, err := h.open(name + h.d.k.streamExt)
	h.view.RUnlock()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n := c.sizeOfRead()
	for range 1 + c.r.IntN(10) {
		_, err := h.read(c, fd, s, c.r.Int64N(s.size()), n)
		if errors.Is(err, unix.ESTALE) {
			h.view.RLock() // waits for a restore under way
			stale := h.restores != restores
			h.view.RUnlock()
			if stale {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
