package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Joiner is the storage of a dataset of several arrays: it makes one object of one file
// of each.
type Joiner interface {
	Join(ctx context.Context, names []string, files []storage.Object) (storage.Object, error)
}

// listArrays gives an object for the i-th file of each array, by path (RECORDS.md, npy,
// "Several arrays").
func (o *opening) listArrays(ctx context.Context) ([]storage.Object, error) {
	joiner, joins := o.storage.(Joiner)
	switch {
	case !joins:
		return nil, fmt.Errorf("dataset %s: internal error: its storage joins no arrays", &o.target)
	case o.target.file != "" || o.target.pattern != nil:
		return nil, fmt.Errorf("dataset %s: with --array name the directory: the patterns of the arrays say which files are read", &o.target)
	}
	arrays := o.Format.Arrays
	names, files := make([]string, len(arrays)), make([][]storage.Object, len(arrays))
	for i, a := range arrays {
		names[i] = a.Name
		var err error
		if files[i], err = o.listArray(ctx, a); err != nil {
			return nil, err
		}
	}
	for i, list := range files {
		if n, first := len(list), len(files[0]); n != first {
			return nil, fmt.Errorf("dataset %s: --array %s has %d files (the last is %s), and --array %s has %d (the last is %s): each file needs one of every array",
				&o.target, names[0], first, files[0][first-1].Path, names[i], n, list[n-1].Path)
		}
	}
	objects := make([]storage.Object, len(files[0]))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(joinsAtOnce)
	for n := range objects {
		g.Go(func() (err error) {
			group := make([]storage.Object, len(files))
			for i := range files {
				group[i] = files[i][n]
			}
			if objects[n], err = joiner.Join(ctx, names, group); err != nil {
				return fmt.Errorf("dataset %s: %w", &o.target, err)
			}
			return nil
		})
	}
	return objects, g.Wait()
}

// joinsAtOnce is how many shards are looked at at a time: each waits for a small read of
// every file, one after the other.
const joinsAtOnce = 32

// listArray gives the files of one array, in order, at least one.
func (o *opening) listArray(ctx context.Context, a spec.Array) ([]storage.Object, error) {
	p, err := parsePattern(a.Pattern)
	if err != nil {
		return nil, fmt.Errorf("--array %s: %w", a.Name, err)
	}
	own := o.ownDir()
	match := func(path string, isDir bool) bool {
		return !(isDir && path == own) && path != "." && p.match(path, isDir)
	}
	var files []storage.Object
	err = o.storage.List(ctx, match, func(x storage.Object) error {
		files = append(files, x)
		return nil
	})
	if err == nil {
		files, err = p.choose(files)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: --array %s: %w", &o.target, a.Name, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("dataset %s: --array %s: no file is %s: patterns are relative to the dataset's directory", &o.target, a.Name, a.Pattern)
	}
	slices.SortFunc(files, func(x, y storage.Object) int { return strings.Compare(x.Path, y.Path) })
	for _, f := range files {
		if codec, _ := o.table.codec(f.Path); codec != 0 {
			return nil, fmt.Errorf("dataset %s: %s is compressed: arrays that are read together have to be decompressed first", &o.target, f.Path)
		}
	}
	return files, nil
}
