package storagetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func testChanged(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	listed := list(t, s, everything)["large.tar"]
	inode, time, shrunk, grown := listed, listed, listed, listed
	inode.Version.Inode++
	time.Version.ModTimeNanos -= 1e9
	shrunk.SizeBytes += 10 // it was larger when it was listed
	grown.SizeBytes -= 10
	for range 2 { // first with the object closed, then with it open
		for _, o := range []storage.Object{inode, time, shrunk, grown} {
			reads := []*storage.Read{{Object: o, OffsetBytes: 5, Buf: make([]byte, 10)}, {Object: o, OffsetBytes: 50, Buf: make([]byte, 7)}}
			for i, err := range submit(t, s, reads) {
				require.ErrorIs(t, err, storage.ErrChanged)
				requireError(t, err, reads[i])
			}
		}
		r := &storage.Read{Object: listed, OffsetBytes: 5, Buf: make([]byte, 10)}
		require.NoError(t, submit(t, s, []*storage.Read{r})[0])
		requireBytes(t, files, r)
	}
}

func testVanished(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	o := list(t, s, everything)["large.tar"]
	for _, path := range []string{"nothing.tar", "nothing/at.all", "large.tar/below"} {
		o.Path = path
		r := &storage.Read{Object: o, Buf: make([]byte, 10)}
		err := submit(t, s, []*storage.Read{r})[0]
		require.ErrorIs(t, err, storage.ErrChanged)
		requireError(t, err, r)
	}
}
