package fs

import (
	"context"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// readOnly is embedded by nodes that can't be changed. go-fuse answers operations that a node does
// not implement with ENOTSUP, or lets them succeed (unlink, rmdir).
type readOnly struct{ fusefs.Inode }

func (*readOnly) Setattr(context.Context, fusefs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return errnoReadOnly
}

// Fsync succeeds: there is nothing to write back.
func (*readOnly) Fsync(context.Context, fusefs.FileHandle, uint32) syscall.Errno { return ok }

func (*readOnly) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	statfs(out)
	return ok
}

// readOnlyDir is embedded by directories that can't be changed.
type readOnlyDir struct{ readOnly }

func (*readOnlyDir) Create(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, errnoReadOnly
}

func (*readOnlyDir) Mkdir(context.Context, string, uint32, *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	return nil, errnoReadOnly
}

func (*readOnlyDir) Mknod(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	return nil, errnoReadOnly
}

func (*readOnlyDir) Link(context.Context, fusefs.InodeEmbedder, string, *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	return nil, errnoReadOnly
}

func (*readOnlyDir) Symlink(context.Context, string, string, *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	return nil, errnoReadOnly
}

// Tmpfile returns that it is not supported; programs then choose a name.
func (*readOnlyDir) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, errnoNoTmpfile
}

func (*readOnlyDir) Unlink(context.Context, string) syscall.Errno { return errnoReadOnly }
func (*readOnlyDir) Rmdir(context.Context, string) syscall.Errno  { return errnoReadOnly }

func (*readOnlyDir) Rename(context.Context, string, fusefs.InodeEmbedder, string, uint32) syscall.Errno {
	return errnoReadOnly
}

// statfs is the answer for df and pathconf. With a zero length of names, programs would refuse
// every name.
func statfs(out *fuse.StatfsOut) {
	out.Bsize, out.Frsize = blockBytes, 4096
	out.NameLen = 255
}

func wantsWrite(flags uint32) bool {
	return flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0
}

// directory is what go-fuse must find on a directory: methods that are missing there either succeed
// without doing anything, or fail with ENOTSUP.
type directory interface {
	fusefs.NodeGetattrer
	fusefs.NodeSetattrer
	fusefs.NodeLookuper
	fusefs.NodeReaddirer
	fusefs.NodeCreater
	fusefs.NodeMkdirer
	fusefs.NodeMknoder
	fusefs.NodeLinker
	fusefs.NodeSymlinker
	fusefs.NodeTmpfiler
	fusefs.NodeUnlinker
	fusefs.NodeRmdirer
	fusefs.NodeRenamer
	fusefs.NodeFsyncer
	fusefs.NodeStatfser
}

// file is what go-fuse must find on a file.
type file interface {
	fusefs.NodeGetattrer
	fusefs.NodeSetattrer
	fusefs.NodeOpener
	fusefs.NodeStatfser
}

var (
	_ directory = (*rootNode)(nil)
	_ directory = (*epochNode)(nil)
	_ directory = (*coordsNode)(nil)

	_ file = (*streamNode)(nil)
	_ file = (*controlNode)(nil)
	_ file = (*scratchNode)(nil)
	_ file = (*fixedNode)(nil)
	_ file = (*liveNode)(nil)
	_ file = (*positionNode)(nil)
	_ file = (*coordinateNode)(nil)

	_ fusefs.NodeReader   = (*scratchNode)(nil)
	_ fusefs.NodeWriter   = (*scratchNode)(nil)
	_ fusefs.NodeFlusher  = (*scratchNode)(nil)
	_ fusefs.NodeFsyncer  = (*scratchNode)(nil)
	_ fusefs.NodeReleaser = (*scratchNode)(nil)
	_ fusefs.NodeFsyncer  = (*streamNode)(nil)

	_ fusefs.FileReader   = (*streamHandle)(nil)
	_ fusefs.FileFlusher  = (*streamHandle)(nil)
	_ fusefs.FileReleaser = (*streamHandle)(nil)
	_ fusefs.FileReader   = (*controlHandle)(nil)
	_ fusefs.FileWriter   = (*controlHandle)(nil)
	_ fusefs.FileFlusher  = (*controlHandle)(nil)
	_ fusefs.FileFsyncer  = (*controlHandle)(nil)
	_ fusefs.FileReleaser = (*controlHandle)(nil)
	_ fusefs.FileReader   = textHandle(nil)
	_ fusefs.FileReader   = (*coordinateHandle)(nil)
	_ fusefs.FileReleaser = (*coordinateHandle)(nil)
	_ fusefs.FileReader   = (*takenHandle)(nil)
	_ fusefs.FileReader   = (*liveHandle)(nil)
	_ fusefs.FileReleaser = (*takenHandle)(nil)
	_ fusefs.FileReleaser = (*liveHandle)(nil)

	_ fusefs.DirStream = (*listing)(nil)

	_ fuse.ReadResult = (*readReply)(nil)
	// Without Slices, go-fuse calls Done before it has written the bytes.
	_ interface {
		Slices() ([][]byte, fuse.Status)
	} = (*readReply)(nil)
)
