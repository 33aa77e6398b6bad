package listing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// node is a group or an array of a hierarchy.
type node struct {
	path      string // below the root, "" for the root
	isArray   bool
	documents []storage.Object // that it was read from
	main, own []byte           // zarr.json or .zarray; .zattrs, nil where there is none
	v3        bool
}

// nodeAt reads the documents at a path below the root; nil where there are none.
func (f *finder) nodeAt(ctx context.Context, at string) (*node, error) {
	n := &node{path: at, v3: true}
	found, err := f.read(ctx, n, "zarr.json", &n.main)
	switch {
	case err != nil:
		return nil, err
	case found:
		n.isArray, err = zarr.KindV3(join(at, "zarr.json"), n.main)
		return n, err
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
	return n, nil
}

// read reads a document of n into to, and says whether it is there.
func (f *finder) read(ctx context.Context, n *node, name string, to *[]byte) (bool, error) {
	at := join(n.path, name)
	stat := f.Under.Stat
	if s, ok := f.Under.(storage.Settler); ok {
		if _, err := f.Under.Stat(ctx, at); err != nil { // most are not there, and need not be waited for
			return false, notThere(err)
		}
		stat = s.Settled
	}
	o, err := stat(ctx, at)
	if err != nil {
		return false, notThere(err)
	}
	if o.SizeBytes > zarr.MaxDocumentBytes || o.SizeBytes == 0 {
		return false, fmt.Errorf("%s has %d bytes: documents have from 1 to %d", at, o.SizeBytes, zarr.MaxDocumentBytes)
	}
	b := make([]byte, o.SizeBytes)
	if err := storage.ReadAt(ctx, f.Under, o, b, 0); err != nil {
		return false, err
	}
	*to = b
	n.documents = append(n.documents, o)
	return true, nil
}

func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// array reads an array's documents.
func (n *node) array() (*zarr.Array, error) {
	if n.v3 {
		return zarr.ParseV3(join(n.path, "zarr.json"), n.main)
	}
	return zarr.ParseV2(join(n.path, ".zarray"), n.main, n.own)
}

// join is path.Join, but keeps "" for the root.
func join(parts ...string) string {
	if p := path.Join(parts...); p != "." {
		return p
	}
	return ""
}
