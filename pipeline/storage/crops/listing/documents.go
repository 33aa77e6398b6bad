package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// node is a group or an array of a hierarchy.
type node struct {
	path      string // below the root; "" is the root
	isArray   bool
	documents []storage.Object // from which it was read
	main, own []byte           // for an array: zarr.json or .zarray; .zattrs, or nil if there is none
	v3        bool
	kept      bool        // and counted in finder.held
	problem   error       // why its document can't be read; it may be an array
	parsed    *zarr.Array // the array, once a field uses it: documents are parsed once
}

// nodeAt reads the documents at a path below the root; nil if there are none. A wrong document is
// not an error, but the node's problem.
func (f *finder) nodeAt(ctx context.Context, at string) (*node, error) {
	n := &node{path: at, v3: true}
	found, err := f.read(ctx, n, "zarr.json", &n.main)
	switch {
	case err != nil:
		return nil, err
	case found && n.problem == nil:
		if n.isArray, n.problem = zarr.KindV3(join(at, "zarr.json"), n.main); n.problem != nil {
			n.isArray = true
		}
		if !n.isArray {
			n.main = nil
		}
		return n, nil
	case found:
		return n, nil
	}
	n.v3 = false
	if n.isArray, err = f.read(ctx, n, ".zarray", &n.main); err != nil {
		return nil, err
	}
	if n.isArray {
		_, err = f.read(ctx, n, ".zattrs", &n.own)
		return n, err
	}
	if found, err = f.read(ctx, n, ".zgroup", &n.main); err != nil || !found {
		return nil, err
	}
	n.main = nil
	return n, nil
}

// read reads a document of n into to, and reports whether it exists.
func (f *finder) read(ctx context.Context, n *node, name string, to *[]byte) (bool, error) {
	at := join(n.path, name)
	o, err := f.settled(ctx, at)
	if err != nil {
		return false, notThere(err)
	}
	n.documents = append(n.documents, o)
	switch {
	case o.SizeBytes > zarr.MaxDocumentBytes || o.SizeBytes == 0:
		n.problem = fmt.Errorf("%s has %d bytes: a document has from 1 to %d", at, o.SizeBytes, zarr.MaxDocumentBytes)
	case f.MemoryBytes > 0 && o.SizeBytes > f.MemoryBytes/documentPart:
		n.problem = fmt.Errorf("%s has %d bytes, and reading it takes some %s of memory: use --memory %dMiB or more", at, o.SizeBytes, humanize.IBytes(uint64(documentPart*o.SizeBytes)), (2*documentPart*o.SizeBytes)>>20+1)
	}
	if n.problem != nil {
		n.isArray = true
		return true, nil
	}
	if o.SizeBytes > largeDocument {
		turnOf(ctx).begin()
	}
	b := make([]byte, o.SizeBytes)
	if err := storage.ReadAt(ctx, f.Under, o, b, 0); err != nil {
		return false, err
	}
	*to = b
	return true, nil
}

// settled describes an object that is about to be read.
func (f *finder) settled(ctx context.Context, at string) (storage.Object, error) {
	o, err := f.Under.Stat(ctx, at)
	if err != nil { // most are not there, and need no waiting
		return o, err
	}
	return storage.StatStable(ctx, f.Under, at)
}

func notThere(err error) error {
	switch {
	case errors.Is(err, storage.ErrNoFile):
		return fmt.Errorf("%w: it has to be a file: remove it, or write the array again", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// array parses an array's documents.
func (n *node) array() (*zarr.Array, error) {
	switch {
	case n.problem != nil:
		return nil, n.problem
	case n.parsed != nil:
		return n.parsed, nil
	case n.v3:
		return zarr.ParseV3(join(n.path, "zarr.json"), n.main)
	}
	return zarr.ParseV2(join(n.path, ".zarray"), n.main, n.own)
}

// heldBytes returns the memory that the documents of n take.
func (n *node) heldBytes() int64 { return int64(len(n.main) + len(n.own)) }

// maxHeldBytes bounds the documents of all arrays that crops are cut from. 100 000 microscope
// plates have about 300 MB.
const maxHeldBytes = 1 << 30

// hold counts the documents of a node that stay in memory.
func (f *finder) hold(n *node) error {
	if n.kept {
		return nil
	}
	n.kept = true
	held := f.held.Add(n.heldBytes())
	if held > maxHeldBytes {
		return fmt.Errorf("the documents of all arrays have more than %d bytes: name some of the hierarchies by a pattern", int64(maxHeldBytes))
	}
	if f.MemoryBytes > 0 && held > f.MemoryBytes {
		return fmt.Errorf("the documents of all arrays have more than %d bytes, and half of --memory has no more room: raise --memory, or name some of the hierarchies by a pattern", f.MemoryBytes)
	}
	return nil
}

const (
	// documentPart is roughly how many times its own size reading a document takes.
	documentPart = 16
	// largeDocument is the size from which documents are read one at a time: most have less than 2
	// KiB.
	largeDocument = 32 << 10
)

// turn lets one call of each at a time read large documents; the others wait. A nil turn means that
// there is only one call.
type turn struct {
	mu    *sync.Mutex
	begun bool
}

type turnKey struct{}

func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

func (t *turn) begin() {
	if t != nil && !t.begun {
		t.begun = true
		t.mu.Lock()
	}
}

func (t *turn) end() {
	if t.begun {
		t.mu.Unlock()
	}
}

// atOnce is how many documents and objects are requested at a time: object stores take about 20 ms
// for each, and documents have up to zarr.MaxDocumentBytes.
const atOnce = 32

// each calls one for every element of a list, concurrently, until the first error.
func each[T any](ctx context.Context, list []T, one func(ctx context.Context, x T) error) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	var large sync.Mutex
	for _, x := range list {
		if inner.Err() != nil {
			break
		}
		group.Go(func() error {
			t := &turn{mu: &large}
			defer t.end()
			return one(context.WithValue(inner, turnKey{}, t), x)
		})
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// join is path.Join, but keeps "" for the root.
func join(parts ...string) string {
	if p := path.Join(parts...); p != "." {
		return p
	}
	return ""
}

// relative returns a path relative to another one above it; both are below the root.
func relative(below, at string) string {
	if below == "" {
		return at
	}
	return at[min(len(below)+1, len(at)):]
}
