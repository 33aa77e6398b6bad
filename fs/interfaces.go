package fs

import (
	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

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
