package diskcache

import "github.com/lsiofs/lsiofs/uring"

const (
	// pieceBytes is how much is read and checked at a time: it fits in a core's own cache.
	pieceBytes = 256 << 10
	// scratchPieceBytes is the maximum that is read into scratch memory. Larger pieces are read
	// directly to where they are wanted, except for pages of which only a part is: a copy costs
	// more than the two reads that this takes.
	scratchPieceBytes = 64 << 10
)

// piece is pages whose sums are there, as one read. It is reused.
type piece struct {
	x       *op
	pages   run
	buf     []byte // the pages' memory
	scratch bool   // buf is not the submitter's memory
	arrived bool   // they have been read: check is next
	request uring.Request
}

// cut divides a run of pages whose sums are there into pieces.
func (x *op) cut(r run) {
	off, n := x.read.OffsetBytes, int64(len(x.read.Buf))
	whole := run{pagesOf(off), (off + n) / pageBytes}.overlap(r)
	if whole.bytes() < scratchPieceBytes {
		x.split(r, scratchPieceBytes/pageBytes, true)
		return
	}
	x.split(run{r.begin, whole.begin}, 1, true)
	x.split(whole, pieceBytes/pageBytes, false)
	x.split(run{whole.end, r.end}, 1, true)
}

func (x *op) split(r run, most int64, scratch bool) {
	for at := r.begin; at < r.end; at += most {
		x.left.Add(1)
		p, _ := x.s.pieces.Get().(*piece)
		if p == nil {
			p = &piece{}
			p.request.Done = p.ended
		}
		p.x, p.pages, p.scratch, p.arrived = x, run{at, min(at+most, r.end)}, scratch, false
		p.begin()
	}
}

func (p *piece) begin() {
	if !p.scratch {
		to, _ := p.x.buf(p.pages)
		p.readInto(to)
		return
	}
	if buf, ok := p.x.s.scratch.take(p); ok {
		p.readInto(buf)
	}
}

// wantsBytes and lent implement borrower.
func (p *piece) wantsBytes() int { return int(p.pages.bytes()) }

func (p *piece) lent(buf []byte) {
	p.buf = buf
	p.x.s.readers.add(p) // this goroutine belongs to another op
}

func (p *piece) readInto(buf []byte) {
	p.buf = buf
	files := p.x.object.files.Load()
	p.request.File, p.request.OffsetBytes, p.request.Buf = files.data, p.pages.begin*pageBytes, buf
	if p.x.s.config.Engine.ReadNow(&p.request) {
		p.check()
		return
	}
	p.x.s.config.Engine.Submit([]*uring.Request{&p.request})
}

// ended is called by the engine.
func (p *piece) ended(n int, err error) {
	if err != nil {
		p.x.s.failed("read pages of "+p.x.read.Object.Path, err)
		n = 0
	}
	// What is missing at the end of the file reads as zeros, which match only the sum of zeros.
	clear(p.buf[n:])
	p.arrived = true
	p.x.s.readers.add(p)
}

// run implements task.
func (p *piece) run() {
	if p.arrived {
		p.check()
		return
	}
	p.readInto(p.buf)
}

// check takes the pages that match their sums, and fetches the others.
func (p *piece) check() {
	x := p.x
	var bad []run
	good := int64(0)
	for i := p.pages.begin; i < p.pages.end; i++ {
		content := p.buf[(i-p.pages.begin)*pageBytes:][:pageBytes]
		if x.object.summer.sum(i, content) != sumOf(x.sums, i-x.pages.begin) {
			bad = with(bad, i)
			continue
		}
		good++
		if p.scratch {
			x.copyIn(run{i, i + 1}, content)
		}
	}
	x.s.counts.hits.Add(uint64(good))
	if p.scratch {
		x.s.scratch.give(p.buf)
	}
	p.x, p.buf, p.request.File, p.request.Buf = nil, nil, nil, nil
	x.s.pieces.Put(p)
	if len(bad) > 0 {
		x.mismatched(bad)
		x.bring(bad, false)
	}
	x.part(nil)
}

// mismatched clears the sums of pages that do not match them. A sum that is 0 by now belongs to a
// page that was dropped while it was read, which is not an error.
func (x *op) mismatched(bad []run) {
	files, disk := x.object.files.Load(), x.s.dir.disk
	for _, r := range bad {
		sums := make([]byte, r.pages()*sumBytes)
		if _, err := disk.read(files.sums.FD(), sums, sumsAt(r.begin)); err != nil {
			x.s.failed("read sums of "+x.read.Object.Path, err)
			return
		}
		for still, here := range alike(sums, r.begin) {
			if !here {
				continue
			}
			x.s.counts.bad.Add(uint64(still.pages()))
			if err := x.s.dir.zero(files.sums.FD(), still); err != nil {
				x.s.failed("write sums of "+x.read.Object.Path, err)
			}
		}
	}
}
