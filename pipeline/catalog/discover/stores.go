package discover

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
)

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
	return fmt.Errorf("%s holds Zarr arrays, as %s says: say which crops of them are records, with --format zarr --crop DIM=N,… (lsiofs help zarr)", &f.Target, at)
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
