package fs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/pipeline"
)

// coordsNode is the directory coords, or one below it. With one cube, coords contains the files;
// with several, there is a directory for each, at the cube's path.
//
//	coords/time.npy
//	coords/2018/europe.zarr/time.npy
type coordsNode struct {
	readOnlyDir
	t     *tree
	below string // path below the mount point
	// Cubes from … to-1 are below it, or it is the directory of the single cube from.
	from, to int
	isCube   bool
}

// coordsOf returns the directory coords.
func (t *tree) coordsOf() *coordsNode {
	n := len(t.cubes)
	return &coordsNode{t: t, below: nameCoords, to: n, isCube: n == 1}
}

func (n *coordsNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.t.dirAttr(&out.Attr, 0o555, n.t.started)
	out.SetTimeout(constantTimeout)
	return ok
}

// prefix is the common prefix of the paths of the cubes below n.
func (n *coordsNode) prefix() string {
	return strings.TrimPrefix(strings.TrimPrefix(n.below, nameCoords), "/")
}

// directory returns the directory of a name in n, nil if there is none. Cubes are sorted by path,
// so those below a directory are consecutive.
func (n *coordsNode) directory(name string) *coordsNode {
	path := name
	if p := n.prefix(); p != "" {
		path = p + "/" + name
	}
	d := &coordsNode{t: n.t, below: n.below + "/" + name}
	if d.from, d.isCube = slices.BinarySearch(n.t.cubes, path); d.isCube {
		d.to = d.from + 1
		return d
	}
	d.from, _ = slices.BinarySearch(n.t.cubes, path+"/")
	d.to, _ = slices.BinarySearch(n.t.cubes, path+string('/'+1)) // after all that begin with path/
	if d.from == d.to {
		return nil
	}
	return d
}

// coordinates returns the files in n.
func (n *coordsNode) coordinates(ctx context.Context) ([]pipeline.Coordinate, error) {
	p := n.t.patient(ctx, nil)
	defer p.finish()
	return n.t.dataset.Coordinates(p, n.from)
}

// Lookup finds files of coordinates, or directories of cubes.
func (n *coordsNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	child := n.GetChild(name)
	path := n.below + "/" + name
	if !n.isCube {
		d := n.directory(name)
		if d == nil {
			return nil, errnoNoEntry
		}
		if child == nil {
			child = n.NewInode(ctx, d, n.t.named(syscall.S_IFDIR, path))
			n.t.lookups.add(n.EmbeddedInode(), name)
		}
		n.t.dirAttr(&out.Attr, 0o555, n.t.started)
		constant(out)
		return child, ok
	}
	list, err := n.coordinates(ctx)
	if err != nil {
		return nil, n.t.problems.errno(path, err)
	}
	i := slices.IndexFunc(list, func(c pipeline.Coordinate) bool { return c.Dim+extNpy == name })
	if i < 0 {
		return nil, errnoNoEntry
	}
	f := &coordinateNode{t: n.t, path: path, cube: n.from, Coordinate: list[i]}
	if child == nil {
		child = n.NewInode(ctx, f, n.t.named(syscall.S_IFREG, path))
		n.t.lookups.add(n.EmbeddedInode(), name)
	}
	f.attr(&out.Attr)
	constant(out)
	return child, ok
}

func (n *coordsNode) Readdir(ctx context.Context) (fusefs.DirStream, syscall.Errno) {
	var own []fuse.DirEntry
	add := func(mode uint32, name string) {
		own = append(own, fuse.DirEntry{Mode: mode, Name: name, Ino: n.t.named(mode, n.below+"/"+name).Ino})
	}
	if n.isCube {
		list, err := n.coordinates(ctx)
		if err != nil {
			return nil, n.t.problems.errno(n.below, err)
		}
		for _, c := range list {
			add(syscall.S_IFREG, c.Dim+extNpy)
		}
		return &listing{own: own}, ok
	}
	last := ""
	for _, cube := range n.t.cubes[n.from:n.to] {
		rest := strings.TrimPrefix(strings.TrimPrefix(cube, n.prefix()), "/")
		name, _, _ := strings.Cut(rest, "/")
		if name != last {
			add(syscall.S_IFDIR, name)
		}
		last = name
	}
	return &listing{own: own}, ok
}

// coordinateNode is a file of coordinates. It is read when it is opened, and kept while it is open.
type coordinateNode struct {
	readOnly
	pipeline.Coordinate
	t    *tree
	path string // below the mount point
	cube int

	mu    sync.Mutex
	opens int
	text  []byte // kept while there are opens
}

func (n *coordinateNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	out.SetTimeout(constantTimeout)
	return ok
}

func (n *coordinateNode) attr(out *fuse.Attr) { n.t.attr(out, 0o444, n.SizeBytes, n.t.started) }

func (n *coordinateNode) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	p := n.t.patient(ctx, nil)
	defer p.finish()
	text, err := n.take(p)
	if err != nil {
		return nil, 0, n.t.problems.errno(n.path, err)
	}
	return &coordinateHandle{textHandle: text, n: n}, streamFlags, ok
}

// take returns the file, which stays until it has been given back as often as it was taken. Callers
// that come while it is being read read it, too.
func (n *coordinateNode) take(ctx context.Context) ([]byte, error) {
	n.mu.Lock()
	text := n.text
	if text != nil {
		n.opens++
	}
	n.mu.Unlock()
	if text != nil {
		return text, nil
	}
	text, err := n.t.dataset.Coordinate(ctx, n.cube, n.Dim)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil {
		n.text = text
	}
	n.opens++
	return n.text, nil
}

func (n *coordinateNode) give() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opens--; n.opens == 0 {
		n.text = nil
	}
}

// coordinateHandle is an opening of a file of coordinates.
type coordinateHandle struct {
	textHandle
	n *coordinateNode
}

func (h *coordinateHandle) Release(context.Context) syscall.Errno {
	h.n.give()
	return ok
}
