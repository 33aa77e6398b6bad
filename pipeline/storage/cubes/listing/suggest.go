package listing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

const (
	// suggestedAmong bounds the directories that are looked into for a suggestion, and
	// namesAmong the names that are read on the way: most datasets are no hierarchies, and what
	// they are is found out without waiting for this.
	suggestedAmong = 1000
	firstAmong     = 100 // of those directly below the root
	namesAmong     = 20_000
)

// Suggestion is what to type for crops of a hierarchy.
type Suggestion struct {
	Flags  string // --crop, and --array where that is needed
	Arrays string // a line for each of several arrays; "" where there are not several
}

// Suggest says what to type for crops of the hierarchy that a storage's root is, or that lies
// directly below it, and matches; ok is false where there is none. Of arrays that c.Spec names it is
// for the first. It looks at a bounded number of names and documents.
func Suggest(ctx context.Context, c Config) (s Suggestion, ok bool) {
	c.Under = &glance{Storage: c.Under}
	f := newFinder(c)
	f.maxDirectories = suggestedAmong
	h, err := f.nodeAt(ctx, "")
	if err != nil {
		return s, false
	}
	if h == nil || !f.Match(".", false) {
		if h = f.first(ctx); h == nil {
			return s, false
		}
	}
	best := suggestion{of: h}
	if len(f.Spec.Fields) > 0 {
		best.wanted = join(h.path, pathOf(f.Spec.Fields[0]))
	}
	if h.isArray {
		best.consider(h)
	} else {
		_ = f.explore(ctx, []string{h.path}, directories, f.nodeAt, func(at string, n *node) (bool, error) {
			if n != nil && n.isArray {
				best.consider(n)
				return false, nil
			}
			return true, nil
		}) // what was found until then will do
	}
	if best.all.count > 1 {
		s.Arrays = best.all.String()
	}
	s.Flags = best.flags()
	return s, true
}

// DocumentAt is the document that makes a path of a storage a hierarchy, "" where there is none.
func DocumentAt(ctx context.Context, under storage.Storage, at string) string {
	n, err := newFinder(Config{Under: under}).nodeAt(ctx, at)
	if err != nil || n == nil {
		return ""
	}
	return n.documents[0].Path
}

// lacksCrop says that nothing tells how large crops are, and what might be typed.
func (f *finder) lacksCrop(ctx context.Context) error {
	const lacks = "--format zarr needs --crop: how many elements of each dimension a record has, as "
	s, ok := Suggest(ctx, f.Config)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !ok:
		return errors.New(lacks + "--crop time=24,y=128,x=128")
	case s.Arrays != "":
		return fmt.Errorf("%s%s; there are\n%s", lacks, s.Flags, s.Arrays)
	}
	return errors.New(lacks + s.Flags)
}

// first is the first hierarchy directly below the root; nil if there is none.
func (f *finder) first(ctx context.Context) (first *node) {
	list, _ := f.below(ctx, []string{""}, func(at string, isDir bool) bool { return isDir && f.Match(at, false) }) // what was found until then will do
	var mu sync.Mutex
	_ = each(ctx, list[:min(len(list), firstAmong)], func(ctx context.Context, at string) error {
		n, err := f.nodeAt(ctx, at)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && n != nil && (first == nil || n.path < first.path) {
			first = n
		}
		return nil
	})
	return first
}

// glance is a storage of which only the first names are listed.
type glance struct{ storage.Storage }

func (g *glance) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	names := 0
	return g.Storage.List(ctx, func(path string, isDir bool) bool {
		if names++; names > namesAmong {
			return !isDir
		}
		return match(path, isDir)
	}, func(o storage.Object) error {
		if names > namesAmong {
			return errEnough
		}
		return visit(o)
	})
}

var errEnough = fmt.Errorf("there are more than %d names", namesAmong)

// suggestion is the array of most dimensions, the first of them by path, or the one that is wanted.
type suggestion struct {
	of     *node
	wanted string // path; "": any
	path   string
	array  *zarr.Array
	alike  int // have as many dimensions
	all    described
}

func (s *suggestion) consider(n *node) {
	a, err := n.array()
	s.all.add(n.path, describe(relative(s.of.path, n.path), a, err))
	if err != nil || len(a.Shape) == 0 || s.array != nil && len(a.Shape) < len(s.array.Shape) || s.wanted != "" && n.path != s.wanted {
		return
	}
	if s.array == nil || len(a.Shape) > len(s.array.Shape) {
		s.alike = 0
	}
	if s.alike++; s.alike == 1 || n.path < s.path {
		s.path, s.array = n.path, a
	}
}

// flags are what to type for crops of two bricks along each dimension. Where an array is wanted, it
// was named.
func (s *suggestion) flags() string {
	if s.array == nil {
		return "--crop DIM=N,…"
	}
	text := ""
	if s.alike > 1 {
		text = "--array " + relative(s.of.path, s.path) + " "
	}
	var parts []string
	for d, n := range s.array.Shape {
		crop := max(min(n, 2*s.array.Brick[d]), 1)
		if s.array.Dims == nil || s.array.Dims[d] == "" {
			parts = append(parts, fmt.Sprint(crop))
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d", s.array.Dims[d], crop))
		}
	}
	return text + "--crop " + strings.Join(parts, ",")
}
