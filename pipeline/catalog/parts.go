package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// PassPart is one of Count parts of a dataset: the shards whose number in dataset order, modulo
// Count, is Index. 0 ≤ Index < Count.
type PassPart struct{ Index, Count int }

// Indexed is the result of IndexPart.
type Indexed struct {
	Shards int // of the dataset
	OfPart int // in the part
	Reused int // of the part, indexed earlier by another run
	Known  int // of the dataset, indexed at the end of the call, including those other parts have finished by then
	// Records of the part's shards.
	Records uint64
	// Directory is where the index is stored.
	Directory string
}

// IndexPart indexes those shards of a part that are not indexed yet, and stores the result in the
// index directory for the Open that follows the last part and then reads no records. Parts may be
// indexed concurrently, by processes of several machines that share the directory, and repeatedly:
// an indexed shard is not indexed again. When ctx ends, the finished shards are kept.
//
// Open checks that the kinds of shards agree, because it sees all of them.
func IndexPart(ctx context.Context, c Config, part PassPart) (Indexed, error) {
	switch {
	case part.Count < 1 || part.Index < 0 || part.Index >= part.Count:
		return Indexed{}, fmt.Errorf("part %d of %d does not exist: parts are numbered from 0 to one less than their number", part.Index, part.Count)
	case c.Rebuild:
		return Indexed{}, errors.New("a part can't be rebuilt, because what the other parts stored before would stay: rebuild the whole index, or name another directory with --index-dir")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	o, err := c.begin()
	if err != nil {
		return Indexed{}, err
	}
	defer o.reads.Close() // nothing waits for these any more
	o.part = &part
	_, err = o.open(ctx)
	o.reporter.stop(err == nil)
	if err != nil {
		return Indexed{}, err
	}
	o.indexed.Directory = o.store.Dir()
	return o.indexed, nil
}

// indexPart indexes those shards of todo that are in the part, and fills in o.indexed. shards has
// the stored index of the others.
func (o *opening) indexPart(ctx context.Context, shards []index.Shard, todo []int) error {
	b := o.store.BeginPart(formatLine(o.found.Format), o.reusable)
	defer b.Close()
	left := o.goOn(b, shards, todo)
	var mine []int
	for _, i := range left {
		if i%o.part.Count == o.part.Index {
			mine = append(mine, i)
		}
	}
	o.indexed = Indexed{Shards: len(shards), Known: len(shards) - len(left) + len(mine)}
	totals := Progress{ShardsTotal: len(mine)}
	for i := o.part.Index; i < len(shards); i += o.part.Count {
		o.indexed.OfPart++
		if shards[i].Blob != nil {
			totals.Records += shards[i].Blob.Header().Records
		}
	}
	o.indexed.Reused = o.indexed.OfPart - len(mine)
	totals.Reused = o.indexed.Reused
	for _, i := range mine {
		totals.BytesTotal += o.found.Shards[i].Object.SizeBytes
	}
	o.reporter.planned(totals)
	p := o.newPass(b)
	if err := o.assumed(p.run(ctx, o.found.Shards, mine)); err != nil {
		return err
	}
	// Journals are written late: make sure that the part is really stored.
	err := b.Added(func(_ int, _ uint32, blob index.Blob) { totals.Records += blob.Header().Records })
	if err == nil && len(mine) > 0 && !b.Stays() {
		err = errors.New("the part could not be stored, because the index directory can't be written: free space there, or name another with --index-dir")
	}
	if err != nil {
		return fmt.Errorf("index of %s: %w", &o.target, err)
	}
	o.indexed.Records = totals.Records
	if len(left) > len(mine) { // others may have done some of them meanwhile
		o.indexed.Known += o.doneByOthers(shards, left)
	}
	return nil
}

// doneByOthers returns how many shards of the other parts are indexed by now.
func (o *opening) doneByOthers(shards []index.Shard, left []int) (n int) {
	b := o.store.BeginPart(formatLine(o.found.Format), o.reusable)
	defer b.Close()
	for _, i := range left {
		if i%o.part.Count != o.part.Index && len(o.goOn(b, shards, []int{i})) == 0 {
			n++
		}
	}
	return n
}
