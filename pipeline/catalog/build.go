package catalog

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// build indexes the shards in todo, seals the index, and opens what was sealed.
func (o *opening) build(ctx context.Context, shards []index.Shard, todo []int) (*Catalog, error) {
	usable := o.reusable
	if o.Rebuild {
		usable = nil
	}
	b := o.store.Begin(formatLine(o.found.Format), usable)
	defer b.Close()
	todo = o.goOn(b, shards, todo)
	o.plan(shards, todo)
	p := o.newPass(b)
	if err := o.assumed(p.run(ctx, o.found.Shards, todo)); err != nil {
		return nil, err
	}
	err := b.Added(func(i int, codec uint32, blob index.Blob) {
		shards[i] = index.Shard{Object: o.found.Shards[i].Object, Codec: codec, Blob: blob}
	})
	if err != nil {
		return nil, fmt.Errorf("index of %s: %w", &o.target, err)
	}
	return o.seal(b, shards)
}

// assumed wraps the failure of a pass in which some shards were assumed to be of the format that
// their names imply.
func (o *opening) assumed(err error) error {
	if err != nil && !o.sniffAll && slices.ContainsFunc(o.found.Shards, func(s discover.Shard) bool { return s.Assumed }) {
		return &assumedError{err}
	}
	return err
}

// goOn fills in the shards that interrupted builds had finished and that have not changed since,
// and returns the numbers of those still to do.
func (o *opening) goOn(b *index.Build, shards []index.Shard, todo []int) []int {
	left := todo[:0]
	for _, i := range todo {
		c := o.found.Shards[i]
		if s, ok := b.Find(c.Object); ok && o.sameCodec(c, s.Codec) {
			shards[i] = s
			continue
		}
		left = append(left, i)
	}
	return left
}

// plan passes the totals of the build to the progress reporter.
func (o *opening) plan(shards []index.Shard, todo []int) {
	totals := Progress{ShardsTotal: len(todo), Reused: len(shards) - len(todo)}
	for _, i := range todo {
		totals.BytesTotal += o.found.Shards[i].Object.SizeBytes
	}
	for i := range shards {
		if shards[i].Blob != nil {
			totals.Records += shards[i].Blob.Header().Records
		}
	}
	o.reporter.planned(totals)
}

// seal writes the index of all shards and opens it, unless the shards are not a valid dataset.
func (o *opening) seal(b *index.Build, shards []index.Shard) (*Catalog, error) {
	if err := o.refuse(shards, shards); err != nil {
		return nil, err
	}
	i, err := b.Seal(o.target.String(), o.content(shards, func(w io.Writer) error { return datasetLines(w, o.found.Format, shards) }))
	if err != nil {
		return nil, err
	}
	catalog, err := o.catalog(i)
	if err != nil {
		_ = i.Close()
	}
	return catalog, err
}

// content returns the content of an index of these shards; lines writes the text whose SHA-256 is
// the fingerprint.
func (o *opening) content(shards []index.Shard, lines func(io.Writer) error) index.Content {
	_, keyed := o.found.Unpacker.(format.Renamer)
	return index.Content{Format: formatLine(o.found.Format), Keyed: keyed, Shards: shards, Judged: o.found.Judged, Lines: lines}
}

// refuse returns an error if shards are not a valid dataset. kinds has at least the first shard of
// each kind.
func (o *opening) refuse(shards, kinds []index.Shard) error {
	if err := o.refuseEmpty(shards); err != nil {
		return err
	}
	if err := o.refuseKinds(kinds); err != nil {
		return err
	}
	return o.refuseTooLarge(shards)
}

// refuseTooLarge refuses datasets whose total size overflows an int64.
func (o *opening) refuseTooLarge(shards []index.Shard) error {
	sum := int64(0)
	for i := range shards {
		n := shards[i].Blob.StreamBytes()
		if sum > math.MaxInt64-n {
			return fmt.Errorf("%s holds more than 2⁶³ bytes in its records: name fewer files with a pattern", &o.target)
		}
		sum += n
	}
	return nil
}

func (o *opening) refuseEmpty(shards []index.Shard) error {
	if slices.ContainsFunc(shards, func(s index.Shard) bool { return s.Blob.Header().Records > 0 }) {
		return nil
	}
	damaged, all, first := 0, &storage.DamagedError{Shards: len(shards)}, ""
	for i := range shards {
		l, path := shards[i].Blob.Losses(), shards[i].Object.Path
		if len(l.First) == 0 {
			continue
		}
		if damaged++; damaged == 1 {
			first = path + ": " + l.First[0].Error()
		}
		for _, d := range l.First[:min(len(l.First), storage.MaxDamages-len(all.Damages))] {
			all.Damages = append(all.Damages, storage.Damage{Shard: path, Record: d.Record, OffsetBytes: d.OffsetBytes, RawOffset: d.RawOffset, Reason: d.PartReason()})
		}
		for _, r := range l.Reasons {
			all.Total += r.Count
		}
	}
	if damaged > 0 {
		all.Err = fmt.Errorf("%s holds no records in %s: --on-corrupt skip leaves out what is damaged, such as %s", &o.target, files(len(shards)), first)
		return all
	}
	return fmt.Errorf("%s holds no records in %s of format %s: check the path, or choose another --format", &o.target, files(len(shards)), o.found.Format.Name)
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}
