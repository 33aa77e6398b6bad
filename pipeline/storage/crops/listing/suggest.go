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
	// suggestedAmong bounds the directories searched for a suggestion, and namesAmong the names
	// read on the way: most datasets are not hierarchies, and their format is determined without
	// waiting for this.
	suggestedAmong = 1000
	firstAmong     = 100 // of those directly below the root
	namesAmong     = 20_000
)

// Suggestion is what to type to get crops of a hierarchy.
type Suggestion struct {
	Flags  string // --crop, and --array if needed
	Arrays string // a line for each array if there are several, or else ""
}

// Suggest returns what to type to get crops of the hierarchy at the storage's root, or of one
// directly below it that matches; ok is false if there is none. If c.Spec names arrays, the
// suggestion is for the first of them. Suggest looks at a bounded number of names and documents.
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
		}) // after an error, what was found so far will do
	}
	if best.all.count > 1 {
		s.Arrays = best.all.String()
	}
	s.Flags = best.flags()
	return s, true
}

// DocumentAt returns the document that makes a path of a storage a hierarchy, or "" if it is not
// one.
func DocumentAt(ctx context.Context, under storage.Storage, at string) string {
	n, err := newFinder(Config{Under: under}).nodeAt(ctx, at)
	if err != nil || n == nil {
		return ""
	}
	return n.documents[0].Path
}

// lacksCrop returns the error for a missing --crop, with what to type.
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

// first returns the first hierarchy directly below the root, or nil.
func (f *finder) first(ctx context.Context) (first *node) {
	list, _ := f.below(ctx, []string{""}, func(at string, isDir bool) bool { return isDir && f.Match(at, false) }) // after an error, what was found so far will do
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

// glance is a storage that only lists the first names.
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

// suggestion selects the array with the most dimensions, the first by path, or the wanted one.
type suggestion struct {
	of     *node
	wanted string // the path to accept; "": any
	path   string
	array  *zarr.Array
	alike  int // arrays with as many dimensions
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

// flags returns what to type for crops of two chunks along each dimension. If an array is wanted,
// --array was given already.
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
		crop := max(min(n, 2*s.array.Chunk[d]), 1)
		if s.array.Dims == nil || s.array.Dims[d] == "" {
			parts = append(parts, fmt.Sprint(crop))
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d", s.array.Dims[d], crop))
		}
	}
	return text + "--crop " + strings.Join(parts, ",")
}
