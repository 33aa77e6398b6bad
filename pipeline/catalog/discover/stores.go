package discover

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/listing"
)

// refuseStore is the error for a target that is named as a file, is none, and is a Zarr hierarchy: what
// can't be listed, as at web servers, looks like a file that is not there. It is nil where it is no
// hierarchy.
func (f *finder) refuseStore(ctx context.Context, err error) error {
	if !f.Target.remote || !errors.Is(err, iofs.ErrNotExist) && !strings.Contains(f.Target.file, ".zarr") {
		return nil
	}
	at := listing.DocumentAt(ctx, f.Storage, f.Target.file)
	if at == "" {
		return nil
	}
	return fmt.Errorf("%s holds Zarr arrays, as %s says: say which crops of them are records, with --format zarr --crop DIM=N,… (lsiofs help zarr)", &f.Target, at)
}

// maxNamed bounds what Named gives: patterns that name more say so by numbers, which are looked for in
// any case.
const maxNamed = 1 << 14

// Named returns the paths that a pattern names one by one, by alternatives and by ranges of numbers
// without anything that stands for several names: each of them has to be there. It is nil where there
// are none.
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

// expansions are the patterns without braces that a pattern stands for; false for too many.
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
