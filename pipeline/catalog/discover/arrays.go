package discover

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// listArrays returns an object for each group of files that consists of the i-th file of every
// array, by path (pipeline/format/ARRAYS.md, "Several arrays").
func (f *finder) listArrays(ctx context.Context) ([]storage.Object, error) {
	join := f.Storage.Caps().Join
	switch {
	case join == nil:
		return nil, fmt.Errorf("dataset %s: internal error: its storage joins no arrays", &f.Target)
	case !f.Target.Whole():
		return nil, fmt.Errorf("dataset %s: with --array, name the directory: the arrays' patterns select the files", &f.Target)
	}
	arrays := f.Format.Arrays
	names, files := make([]string, len(arrays)), make([][]storage.Object, len(arrays))
	matched := make([]wildcards, len(arrays))
	for i, a := range arrays {
		names[i] = a.Name
		var err error
		if files[i], matched[i], err = f.listArray(ctx, a); err != nil {
			return nil, err
		}
	}
	for i := range files {
		for n := range min(len(files[0]), len(files[i])) {
			x, y := files[0][n].Path, files[i][n].Path
			if !belong(matched[0].in(x), matched[i].in(y)) {
				return nil, fmt.Errorf("dataset %s: %s of --array %s would be paired with %s of --array %s, but the patterns' wildcards match different text: a file is missing, or numbers are written differently: restore or rename files, or use other patterns",
					&f.Target, x, names[0], y, names[i])
			}
		}
	}
	for i, list := range files {
		if n, first := len(list), len(files[0]); n != first {
			return nil, fmt.Errorf("dataset %s: --array %s has %d files (the last is %s), and --array %s has %d (the last is %s): each file needs one of every array",
				&f.Target, names[0], first, files[0][first-1].Path, names[i], n, list[n-1].Path)
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
			if objects[n], err = join(ctx, names, group); err != nil {
				return fmt.Errorf("dataset %s: %w", &f.Target, err)
			}
			return nil
		})
	}
	return objects, g.Wait()
}

// joinsAtOnce is how many shards are joined concurrently: each waits for a small read of every
// file, one after another.
const joinsAtOnce = 32

// listArray returns the files of one array, in order, at least one.
func (f *finder) listArray(ctx context.Context, a spec.Array) ([]storage.Object, wildcards, error) {
	p, err := parsePattern(a.Pattern)
	if err != nil {
		return nil, wildcards{}, fmt.Errorf("--array %s: %w", a.Name, err)
	}
	files, err := f.listPattern(ctx, p)
	if err != nil {
		return nil, wildcards{}, fmt.Errorf("dataset %s: --array %s: %w", &f.Target, a.Name, err)
	}
	if len(files) == 0 {
		return nil, wildcards{}, fmt.Errorf("dataset %s: --array %s: no file matches %s: patterns are relative to the dataset's directory", &f.Target, a.Name, a.Pattern)
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	for _, x := range files {
		if _, codec := formats.Split(x.Path); codec != nil {
			return nil, wildcards{}, fmt.Errorf("dataset %s: %s is compressed: arrays that are read together must be decompressed first", &f.Target, x.Path)
		}
	}
	return files, newWildcards(p), nil
}

// wildcards finds what the wildcards and ranges of a pattern match in a path.
type wildcards struct{ of []*regexp.Regexp }

func newWildcards(p *pattern) wildcards {
	var w wildcards
	for i := range p.alternatives {
		w.of = append(w.of, regexp.MustCompile(capturing(p.alternatives[i].text)))
	}
	return w
}

// in returns the texts that the wildcards match in a path, in their order.
func (w wildcards) in(path string) []string {
	for _, r := range w.of {
		if m := r.FindStringSubmatch(path); m != nil {
			return m[1:]
		}
	}
	return nil
}

// capturing translates a pattern without alternatives into a regular expression that captures what
// its wildcards match.
func capturing(p string) string {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '\\':
			if i++; i < len(p) {
				b.WriteString(regexp.QuoteMeta(p[i : i+1]))
			}
		case '*':
			switch {
			case strings.HasPrefix(p[i:], "**/"):
				b.WriteString("(?:(.*)/)?")
				i += 2
			case strings.HasPrefix(p[i:], "**"):
				b.WriteString("(.*)")
				i++
			default:
				b.WriteString("([^/]*)")
			}
		case '?':
			b.WriteString("([^/])")
		case '[':
			end := strings.IndexByte(p[i:], ']')
			if end < 0 {
				b.WriteString(regexp.QuoteMeta(p[i:]))
				i = len(p)
				break
			}
			b.WriteString("([^/])")
			i += end
		case '{':
			if _, n, ok, _ := parseRange(p[i:]); ok {
				b.WriteString("([0-9]+)")
				i += n - 1
				break
			}
			b.WriteString(regexp.QuoteMeta("{"))
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	return b.String() + "$"
}

// belong reports whether the wildcards of two patterns match the same text, or the same numbers, in
// two paths. If one pattern has no wildcards, there is nothing to compare.
func belong(a, b []string) bool {
	switch {
	case len(a) == 0 || len(b) == 0:
		return true
	case len(a) != len(b):
		return sameNumbers(strings.Join(a, "/"), strings.Join(b, "/"))
	}
	for i := range a {
		if a[i] != b[i] && !sameNumbers(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameNumbers reports whether two texts have the same numbers in the same order, at least one,
// regardless of leading zeros.
func sameNumbers(a, b string) bool {
	x, y := numbersOf(a), numbersOf(b)
	return len(x) > 0 && slices.Equal(x, y)
}

func numbersOf(s string) (list []string) {
	isNoDigit := func(r rune) bool { return r < '0' || r > '9' }
	for _, n := range strings.FieldsFunc(s, isNoDigit) {
		list = append(list, strings.TrimLeft(n, "0"))
	}
	return list
}
