package fs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// tree is what all nodes of a mount share. It is safe for concurrent use.
type tree struct {
	dataset     Dataset
	growing     *pipeline.Dataset // nil: the dataset does not grow
	open        openSet
	spec        spec.Spec
	fingerprint string // of the spec's epoch; see fingerprintOf
	run         string // of a growing dataset
	content     string // see contentOf
	records     uint64 // of the spec's epoch; see recordsOf
	ext         string
	kinds       []stream.Kind // of a worker's files
	cubes       []string      // that crops are cut from; nil if records are not crops
	subject     checkpoint.Subject
	mountPoint  string
	identity    string // see Mount.Identity
	version     string
	started     time.Time
	uid, gid    uint32
	modes       uint32 // the mode bits that are shown
	controlMode uint32 // mode of the file checkpoint
	log         *slog.Logger

	root                *fusefs.Inode
	readme, description []byte

	view    atomic.Pointer[view]
	views   atomic.Uint64
	nextIno atomic.Uint64
	lives   atomic.Uint64 // generations of live nodes
	// restoring holds a token while a restore is in progress; processes waiting for it can be
	// killed.
	restoring chan struct{}

	handles  handles
	lookups  *lookups
	scratch  scratchFiles
	hidden   hiddenName
	problems problems
	refusals refusals
	traffic  traffic
	kernel   kernelFacts
	// blockBytes is st_blksize of streams.
	blockBytes uint32
	meter      *meter.Meter
	recorder   *recorder

	// ending is closed when nothing is waited for any more: all requests end.
	ending  chan struct{}
	endOnce sync.Once

	readers    readers
	writers    writers
	texts      texts
	interrupts interrupts

	// background are the goroutines that run outside of requests.
	background sync.WaitGroup
}

func newTree(c Config, open openSet) (*tree, error) {
	d := c.Dataset
	if err := checkExtension(d.StreamExtension()); err != nil {
		return nil, err
	}
	t := &tree{
		dataset: d, open: open, spec: d.Spec(), fingerprint: d.Fingerprint(), records: d.Records(),
		ext: d.StreamExtension(), kinds: kindsOf(d), mountPoint: c.MountPoint, identity: rand.Text(), version: c.Version, started: time.Now(),
		uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), log: c.Log,
		ending: make(chan struct{}), restoring: make(chan struct{}, 1),
	}
	// What only the owner can access is shown with the owner's mode bits, so that copies have them.
	if t.modes = 0o700; c.AllowOther {
		t.modes = 0o777
	}
	if t.controlMode = 0o644; c.OthersRestore {
		t.controlMode = 0o666
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.problems.log = t.log
	t.interrupts.group = &t.background
	t.readers.Readers, t.readers.owner, t.readers.log = c.Readers, t.uid, t.log
	t.texts.owner, t.texts.most = t.uid, textsMost
	if t.growing = growingOf(d); t.growing != nil {
		t.run, t.problems.grows = t.growing.Run(), true
	}
	t.subject = checkpoint.Subject{Dataset: t.fingerprint, Run: t.run, Order: t.spec.Order, Records: t.records, Deal: t.spec.Deal, Explain: c.Explain}
	if d.Crops() {
		t.cubes = d.Cubes()
	}
	t.nextIno.Store(firstViewIno)
	t.content = t.contentOf()
	t.hidden.most, t.hidden.mostOwn = hiddenFor, hiddenForOwn
	var err error
	if t.description, err = d.Describe(); err != nil {
		return nil, err
	}
	t.readme = t.renderREADME(t.spec.Epoch, t.records)
	t.lookups = newLookups(lookupsKept, notifyEntry)
	t.meter = d.Meter()
	t.recorder = newRecorder(t)
	return t, nil
}

// start makes the first view.
func (t *tree) start(ctx context.Context, p checkpoint.Position) error {
	v, err := t.newView(ctx, p)
	if err != nil {
		return err
	}
	t.view.Store(v)
	return nil
}

// restore continues where doc points, or changes nothing and returns why not. The reason is kept
// for status.
func (t *tree) restore(ctx context.Context, doc []byte) error {
	select {
	case t.restoring <- struct{}{}:
		defer func() { <-t.restoring }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p, err := checkpoint.Resolve(doc, t.judgedBy(ctx))
	var v *view
	if err == nil {
		v, err = t.newView(ctx, p)
	}
	if err != nil {
		if t.growing != nil {
			err = reworded(err)
		}
		if !errors.Is(err, context.Canceled) {
			t.refusals.note(t.log, err)
		}
		return err
	}
	old := t.view.Swap(v)
	close(old.retired)
	t.refusals.settled()
	t.log.Info("checkpoint restored", "epoch", p.Epoch, "entries", len(p.Done))
	// Not here: the kernel waits for pages that are being read, and for them this request may have
	// to end first.
	t.background.Go(func() { t.dropPages(old) })
	return nil
}

// dropPages invalidates the pages of a retired view in processes that have its files mapped: the
// next access reads them again, and fails.
func (t *tree) dropPages(old *view) {
	for _, n := range t.handles.nodesOf(old) {
		// A node that is gone by now has no pages.
		n.NotifyContent(0, 0)
	}
}

// end makes requests for streams fail from now on, including those in flight.
func (t *tree) end() { t.endOnce.Do(func() { close(t.ending) }) }

// patient makes a request's context from go-fuse's.
func (t *tree) patient(ctx context.Context, retired <-chan struct{}) *patience {
	return patient(ctx, &t.interrupts, retired, t.ending)
}

func (t *tree) isEnding() bool {
	select {
	case <-t.ending:
		return true
	default:
		return false
	}
}

// close closes all handles that clients have left open. No request may be in flight.
func (t *tree) close() {
	t.lookups.close()
	t.recorder.close()
	t.background.Wait()
	for _, h := range t.handles.all() {
		h.close()
	}
	t.problems.flush()
	if names := t.scratch.names(); len(names) > 0 {
		t.log.Warn("files that were written into the mount and not renamed onto checkpoint are lost", "mount_point", t.mountPoint, "files", names)
	}
}

// before returns the entry of done that covers the first n records of G.
func (t *tree) before(n uint64) []order.Done {
	if n == 0 {
		return nil
	}
	return []order.Done{order.First(n, t.spec.Order)}
}

// Timeouts of names and attributes in the kernel: what a restore or a client can change is looked
// up each time; the rest never changes.
const (
	constantTimeout = time.Hour
	// blockBytes is the read size of programs that go by st_blksize: with 512 KiB to 1 MiB Python's
	// tarfile is 3–4 times faster than with 4 KiB. With rings, which copy what they send once more,
	// reads of ringBlockBytes are a quarter faster than those of 1 MiB.
	blockBytes     = 1 << 20
	ringBlockBytes = 512 << 10
)

// attr fills in the attributes of a regular file.
func (t *tree) attr(out *fuse.Attr, mode uint32, size int64, mtime time.Time) {
	out.Mode = fuse.S_IFREG | mode&t.modes
	out.Size = uint64(size)
	out.Nlink = 1
	t.owned(out, mtime)
}

// streamAttr is attr with a block size for streams. Blocks must be set with it.
func (t *tree) streamAttr(out *fuse.Attr, size int64, mtime time.Time) {
	t.attr(out, 0o444, size, mtime)
	out.Blksize = t.blockBytes
	out.Blocks = uint64(size+511) / 512
}

// dirAttr fills in the attributes of a directory.
func (t *tree) dirAttr(out *fuse.Attr, mode uint32, mtime time.Time) {
	out.Mode = fuse.S_IFDIR | mode&t.modes
	out.Nlink = 2
	t.owned(out, mtime)
}

func (t *tree) owned(out *fuse.Attr, mtime time.Time) {
	out.Uid, out.Gid = t.uid, t.gid
	out.SetTimes(&mtime, &mtime, &mtime)
}

// Inode numbers of files that always exist. Views take theirs from firstViewIno on, go-fuse numbers
// scratch files from automaticIno on, and files below epoch-N have numbers from namedIno on that
// are computed from the name: programs (including lsiofs, if its dataset is on a mount) recognize a
// replaced file by its number, but the kernel forgets names, and their numbers, when it is short of
// memory.
const (
	inoREADME = iota + 2
	inoDataset
	inoStatus
	inoStatusJSON
	inoMetrics
	firstViewIno = 1 << 10
	automaticIno = 1 << 48
	namedIno     = 1 << 62 // to 1<<63 - 1: many programs treat them as signed
)

// named is the identity of a node that is a pure function of its path below the mount point. Two
// nodes with the same number (one pair in 2⁶²) are still different nodes, by their generations.
func (t *tree) named(mode uint32, path string) fusefs.StableAttr {
	h := xxh3.HashString128(t.content + path)
	return fusefs.StableAttr{Mode: mode, Ino: namedIno | h.Lo&(namedIno-1), Gen: h.Hi}
}

// contentOf identifies everything that decides the bytes below epoch-N, except their path. So
// another dataset, or another order of it, at the same place has other inodes.
func (t *tree) contentOf() string {
	deal := t.spec.Deal
	deal.Workers = 0 // part of the path
	shards := t.fingerprint
	if t.growing != nil {
		shards = "run " + t.run // which records permanently what an epoch consists of
	}
	return fmt.Sprintf("%s %+v %+v\x00", shards, t.spec.Order, deal)
}

// lookups bounds how many names below epoch-N are kept. Every number makes a name, and the kernel
// keeps a name, and with it a node of this process, until it is short of memory itself. So the
// kernel is asked to drop the names that were looked up longest ago. A name that is in use is
// looked up again, and leads to the same node.
type lookups struct {
	mu      sync.Mutex
	names   []lookedUp // oldest first
	kept    int
	drop    func(lookedUp)
	running bool
	closed  bool
	worker  sync.WaitGroup
}

// lookedUp is a name that was given a node.
type lookedUp struct {
	parent *fusefs.Inode
	name   string
}

// lookupsKept amounts to some 20 MiB of nodes, and some more in the kernel.
const lookupsKept = 1 << 15

func newLookups(kept int, drop func(lookedUp)) *lookups {
	return &lookups{kept: kept, drop: drop}
}

// notifyEntry makes the kernel drop a name. It waits for requests about the name's directory, so it
// must not be called from one. If the kernel has already dropped the name, it returns an error that
// can be ignored.
func notifyEntry(l lookedUp) { l.parent.NotifyEntry(l.name) }

// add adds a new name. Names are dropped in another goroutine.
func (l *lookups) add(parent *fusefs.Inode, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.names = append(l.names, lookedUp{parent, name})
	if len(l.names) > l.kept && !l.running {
		l.running = true
		l.worker.Go(l.run)
	}
}

// run drops names until few enough are left.
func (l *lookups) run() {
	for {
		l.mu.Lock()
		if len(l.names) <= l.kept || l.closed {
			l.running = false
			l.mu.Unlock()
			return
		}
		// A quarter at once, so that the rest is rarely moved.
		n := len(l.names) - l.kept + l.kept/4
		old := append([]lookedUp(nil), l.names[:n]...)
		l.names = append(l.names[:0], l.names[n:]...)
		clear(l.names[len(l.names):cap(l.names)])
		l.mu.Unlock()
		for _, name := range old {
			l.drop(name)
		}
	}
}

// close stops the dropping and waits for it.
func (l *lookups) close() {
	l.mu.Lock()
	l.closed, l.names = true, nil
	l.mu.Unlock()
	l.worker.Wait()
}
