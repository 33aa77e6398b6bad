package discover

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
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
	err := fmt.Errorf("%s holds Zarr arrays: choose which crops of them are records, for example --format zarr %s (lsiofs help zarr)", &f.Target, s.Flags)
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

// refuseStore returns the error for a target that is named as a file but is a Zarr hierarchy: on a
// storage that can't be listed, such as a web server, it looks like a missing file. It returns nil
// if it is not a hierarchy.
func (f *finder) refuseStore(ctx context.Context, err error) error {
	if !f.Target.remote || !errors.Is(err, iofs.ErrNotExist) && !strings.Contains(f.Target.file, ".zarr") {
		return nil
	}
	at := listing.DocumentAt(ctx, f.Storage, f.Target.file)
	if at == "" {
		return nil
	}
	return fmt.Errorf("%s holds Zarr arrays (%s): choose which crops of them are records, with --format zarr --crop DIM=N,… (lsiofs help zarr)", &f.Target, at)
}

// maxNamed bounds the result of Named. Patterns that name more use numeric ranges, each number of
// which is required in any case.
const maxNamed = 1 << 14

// Named returns the paths that a pattern names individually, by alternatives and ranges of numbers
// without wildcards: each of them must exist. It returns nil if there are none.
func (t *Target) Named() []string {
	if t.pattern == nil || !strings.Contains(t.pattern.text, "{") {
		return nil
	}
	list, ok := expansions(t.pattern.text)
	if !ok {
		return nil
	}
	named := list[:0]
	for _, path := range list {
		if !hasMeta(path) {
			named = append(named, path)
		}
	}
	return named
}

// expansions returns the patterns without braces that a pattern stands for; false if there are too
// many.
func expansions(text string) ([]string, bool) {
	depth, open := 0, 0
	var cuts []int // at commas of the outermost braces
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open, cuts = i, nil
			}
		case ',':
			if depth == 1 {
				cuts = append(cuts, i)
			}
		case '}':
			if depth--; depth > 0 {
				continue
			} else if depth < 0 {
				return nil, false
			}
			var choices []string
			if r, n, is, err := parseRange(text[open:]); err == nil && is && open+n == i+1 {
				if r.count() > maxNamed {
					return nil, false
				}
				for k := range r.count() {
					choices = append(choices, r.number(k))
				}
			} else {
				from := open + 1
				for _, to := range append(cuts, i) {
					choices = append(choices, text[from:to])
					from = to + 1
				}
			}
			var list []string
			for _, c := range choices {
				more, ok := expansions(text[:open] + c + text[i+1:])
				if list = append(list, more...); !ok || len(list) > maxNamed {
					return nil, false
				}
			}
			return list, true
		}
	}
	return []string{text}, depth == 0
}
