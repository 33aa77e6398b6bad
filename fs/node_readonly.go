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
