package discover

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
)

// refuseZarr returns the error for a target that is, or contains, a Zarr hierarchy, if no file has
// the name of a shard: the user must choose crops, and chunks are not shards of any other format.
// It returns nil if nothing looks like a hierarchy. With thoroughly it also looks for documents
// that listings leave out.
func (f *finder) refuseZarr(ctx context.Context, all []file, thoroughly bool) error {
	hint := thoroughly || strings.HasSuffix(f.Target.root, ".zarr")
	for _, c := range all {
		if x := c.name.Format; x != "" && x != textFormat && x != "npy" {
			return nil
		}
		hint = hint || path.Base(c.Object.Path) == "zarr.json" || strings.Contains("/"+c.Object.Path, ".zarr/")
	}
	if !hint || f.Target.file != "" {
		return nil
	}
	match := func(string, bool) bool { return true }
	if p := f.Target.pattern; p != nil {
		match = p.match
	}
	s, ok := listing.Suggest(ctx, listing.Config{Under: f.Storage, Match: match})
	if !ok {
		return nil
	}
	err := fmt.Errorf("%s holds Zarr arrays: say which crops of them are records, for example --format zarr %s (lsiofs help zarr)", &f.Target, s.Flags)
	if s.Arrays != "" {
		err = fmt.Errorf("%w; there are\n%s", err, s.Arrays)
	}
	return err
}

// References returns which files of a target describe Zarr hierarchies, if the target's name has
// their extension: the target itself, or the files that its pattern names.
func (t *Target) References() (c refs.Config, ok bool) {
	switch {
	case t.file != "" && refs.Is(t.file):
		c.One = t.file
	case t.pattern != nil && !slices.ContainsFunc(t.pattern.alternatives, func(a alternative) bool { return !refs.Is(a.text) }):
		c.Match = t.pattern.match
	default:
		return c, false
	}
	return c, true
}

// listReference returns the hierarchies that a reference file describes.
func (f *finder) listReference(ctx context.Context, one string) ([]storage.Object, error) {
	objects, err := f.listBelow(ctx, func(path string, isDir bool) bool {
		return path == one || strings.HasPrefix(path, one+"/") || isDir && path == "."
	})
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", &f.Target, err)
	}
	return objects, nil
}
