package discover

import (
	"cmp"
	"context"
	"errors"
	iofs "io/fs"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// described gives files without a format in their names that of the file beside them that describes
// them: X.bin with X.idx has the format tokens. Of each format the first pair that was found is
// opened; a pass checks all of them.
func (f *finder) described(ctx context.Context, files []file) error {
	for _, pairs := range formats.Pairs() {
		of := byPath(files)
		shows, looked := false, false
		for i := range files {
			c := &files[i]
			if c.name.Format != "" {
				continue
			}
			companion := pairs.Companion(c.Object.Path)
			beside, ok := of[companion]
			if companion != "" && !ok && !looked && !f.Target.Whole() { // the target may name shards alone
				var err error
				if beside, err = f.companion(ctx, companion); err != nil {
					return err
				}
				ok = beside.Path != ""
			}
			if !ok {
				continue
			}
			if !looked {
				var err error
				if shows, err = f.describes(ctx, pairs, c.Object, beside); err != nil {
					return err
				}
				looked = true
			}
			if shows {
				c.name.Format = pairs.Name()
			}
		}
	}
	return nil
}

func byPath(files []file) map[string]storage.Object {
	of := make(map[string]storage.Object, len(files))
	for i := range files {
		of[files[i].Object.Path] = files[i].Object
	}
	return of
}

// describes reports whether a file describes a shard of a format.
func (f *finder) describes(ctx context.Context, pairs format.Paired, shard, beside storage.Object) (bool, error) {
	if name, known := f.known(shard); known {
		return name == pairs.Name(), nil
	}
	reader := storage.NewReader(ctx, f.Reads, beside, 0)
	defer reader.Close()
	is, err := pairs.Describes(beside.Path, reader, beside.SizeBytes)
	if err != nil {
		return false, f.unreadable(ctx, beside, err)
	}
	return is, nil
}

// companion returns the file with that path; its path is "" if there is none.
func (f *finder) companion(ctx context.Context, path string) (storage.Object, error) {
	o, err := storage.StatStable(ctx, f.Storage, path)
	switch {
	case errors.Is(err, iofs.ErrNotExist) && ctx.Err() == nil:
		return storage.Object{}, nil
	case err != nil:
		return storage.Object{}, Unread(path, err)
	}
	return o, nil
}

// pair finds the files that describe shards: in the listing, or, if the target may have named shards
// alone, beside them. An index remembers these files among those that were judged.
func (f *finder) pair(ctx context.Context, d *Found, objects []storage.Object) error {
	pairs, ok := d.Unpacker.(format.Paired)
	if !ok {
		return nil
	}
	of := make(map[string]storage.Object, len(objects))
	for _, o := range objects {
		of[o.Path] = o
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, cmp.Or(f.AtATime, 2*runtime.GOMAXPROCS(0))))
	for i := range d.Shards {
		s := &d.Shards[i]
		path := pairs.Companion(s.Object.Path)
		if path == "" {
			continue
		}
		if s.Beside, ok = of[path]; ok || f.Target.Whole() {
			continue
		}
		g.Go(func() (err error) {
			s.Beside, err = f.companion(gctx, path)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	for _, s := range d.Shards {
		if s.Beside.Path != "" {
			d.Judged = append(d.Judged, s.Beside)
		}
	}
	return nil
}

// leaveCompanions gives the files that describe shards a reason of their own.
func leaveCompanions(files []file, d decision) {
	for _, pairs := range formats.Pairs() {
		if pairs.Name() != d.format {
			continue
		}
		of := map[string]bool{}
		for i := range files {
			if d.taken[i] {
				of[pairs.Companion(files[i].Object.Path)] = true
			}
		}
		for i := range files {
			if !d.taken[i] && of[files[i].Object.Path] {
				d.reasons[i] = describesShard
			}
		}
	}
}
