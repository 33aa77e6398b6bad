package listing

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// maxAsked bounds the objects requested one by one: at about 20 ms for each atOnce of them, it
// takes 40 s.
const maxAsked = 1 << 16

// askForObjects requests each object that may exist.
func (f *finder) askForObjects(ctx context.Context, l *lister) error {
	total := int64(0)
	for _, x := range l.arrays {
		n := zarr.Grid{Counts: x.counts}.Total()
		if total += min(n, maxAsked+1); total > maxAsked {
			return fmt.Errorf("the array %s has %d objects, and the server does not list them: at most %d are asked for one by one: write it with sharding, or copy it: %w", x.shown(), n, maxAsked, remote.ErrNoListing)
		}
	}
	var mu sync.Mutex
	for _, x := range l.arrays {
		numbers := make([]int64, zarr.Grid{Counts: x.counts}.Total())
		for i := range numbers {
			numbers[i] = int64(i)
		}
		err := each(ctx, numbers, func(ctx context.Context, number int64) error {
			o, err := f.settled(ctx, x.named(number).Path)
			if err != nil {
				return notThere(err)
			}
			mu.Lock()
			defer mu.Unlock()
			return l.add(x, number, o)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// consolidated takes the arrays of hierarchies from the consolidated metadata of their groups.
func (f *finder) consolidated(ctx context.Context, byPath map[string]*contents) error {
	for _, c := range byPath {
		list, from, err := f.nodesOf(ctx, c.of)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("the server lists nothing, and %s has no consolidated metadata: name arrays with --array, or consolidate it: %w", c.of.shown(), remote.ErrNoListing)
		}
		nodes := map[string]*node{}
		for _, d := range list {
			n := nodes[d.Path]
			if n == nil {
				n = &node{path: join(c.of.path, d.Path), documents: []storage.Object{from}, v3: d.Name == "zarr.json"}
				nodes[d.Path] = n
			}
			switch d.Name {
			case "zarr.json":
				n.main = d.Document
				n.isArray, n.problem = zarr.KindV3(join(n.path, d.Name), d.Document)
				n.isArray = n.isArray || n.problem != nil
			case ".zarray":
				n.main, n.isArray = d.Document, true
			case ".zattrs":
				n.own = d.Document
			}
		}
		for _, n := range nodes {
			if n.isArray {
				c.take(f, n)
			}
		}
	}
	return nil
}

// missing returns an error that names the missing document of an array that may be meant, and that
// is in the group's consolidated metadata; nil if there is none.
func (f *finder) missing(ctx context.Context, group *node) error {
	if group.isArray {
		return nil
	}
	list, from, err := f.nodesOf(ctx, group)
	if err != nil {
		return nil // it is only needed for this message
	}
	for _, d := range list {
		at := join(group.path, d.Path)
		wanted := len(f.Spec.Fields) == 0 || slices.ContainsFunc(f.Spec.Fields, func(x spec.Array) bool { return pathOf(x) == d.Path })
		isArray := d.Name == ".zarray"
		if d.Name == "zarr.json" {
			isArray, _ = zarr.KindV3(at, d.Document)
		}
		if !wanted || !isArray {
			continue
		}
		if n, err := f.nodeAt(ctx, at); err == nil && n == nil {
			return fmt.Errorf("%s has the array %s, whose own document %s is missing: write it again, as it is there, or copy it from where the store was made", from.Path, d.Path, join(at, d.Name))
		}
	}
	return nil
}

// nodesOf returns the documents in a group's consolidated metadata.
func (f *finder) nodesOf(ctx context.Context, group *node) ([]zarr.Node, storage.Object, error) {
	n, doc, name := &node{path: group.path}, []byte(nil), "zarr.json"
	if !group.v3 {
		name = ".zmetadata"
	}
	found, err := f.read(ctx, n, name, &doc)
	if err != nil || !found {
		return nil, storage.Object{}, err
	}
	if n.problem != nil {
		return nil, storage.Object{}, n.problem
	}
	at := join(n.path, name)
	if !group.v3 {
		list, err := zarr.ParseV2Consolidated(at, doc)
		return list, n.documents[0], err
	}
	g, err := zarr.ParseV3Group(at, doc)
	if err != nil {
		return nil, storage.Object{}, err
	}
	return g.Nodes, n.documents[0], nil
}
