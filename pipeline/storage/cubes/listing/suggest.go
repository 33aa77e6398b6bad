package listing

import (
	"context"
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

// Suggest says what to type for crops of the hierarchy that a storage's root is, or that lies
// directly below it, and matches as those of Config; ok is false where there is none. It looks at a
// bounded number of names and documents.
func Suggest(ctx context.Context, under storage.Storage, match func(path string, isDir bool) bool) (flags string, ok bool) {
	f := newFinder(Config{Under: &glance{Storage: under}, Match: match})
	f.maxDirectories = suggestedAmong
	h, err := f.nodeAt(ctx, "")
	if err != nil {
		return "", false
	}
	if h == nil || !f.Match(".", false) {
		if h = f.first(ctx); h == nil {
			return "", false
		}
	}
	var best suggestion
	if h.isArray {
		best.consider(h)
	} else {
		_ = f.explore(ctx, []string{h.path}, func(string) bool { return true }, f.nodeAt, func(at string, n *node) (bool, error) {
			if n != nil && n.isArray {
				best.consider(n)
				return false, nil
			}
			return true, nil
		}) // what was found until then will do
	}
	return best.flags(h), true
}

// first is the first hierarchy directly below the root; nil if there is none.
func (f *finder) first(ctx context.Context) (first *node) {
	list, _ := f.below(ctx, []string{""}, func(at string) bool { return f.Match(at, false) }) // what was found until then will do
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

// suggestion is the array of most dimensions, the first of them by path.
type suggestion struct {
	path  string
	array *zarr.Array
	alike int // have as many dimensions
}

func (s *suggestion) consider(n *node) {
	a, err := n.array()
	if err != nil || len(a.Shape) == 0 || s.array != nil && len(a.Shape) < len(s.array.Shape) {
		return
	}
	if s.array == nil || len(a.Shape) > len(s.array.Shape) {
		s.alike = 0
	}
	if s.alike++; s.alike == 1 || n.path < s.path {
		s.path, s.array = n.path, a
	}
}

// flags are what to type for crops of two bricks along each dimension.
func (s *suggestion) flags(h *node) string {
	if s.array == nil {
		return "--format zarr --crop DIM=N,…"
	}
	text := "--format zarr"
	if s.alike > 1 {
		text += " --array " + relative(h.path, s.path)
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
	return text + " --crop " + strings.Join(parts, ",")
}
