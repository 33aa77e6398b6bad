package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestFileChangedWhileQueuedIsIndexedOnceInLatestState(t *testing.T) {
	q := newQueue()
	q.add(storage.Object{Path: "a", SizeBytes: 1})
	q.add(storage.Object{Path: "b", SizeBytes: 1})
	q.add(storage.Object{Path: "a", SizeBytes: 2})

	files, place := q.start(10)
	require.Equal(t, []storage.Object{{Path: "b", SizeBytes: 1}, {Path: "a", SizeBytes: 2}}, files)
	require.EqualValues(t, 3, place)
	require.Empty(t, q.end(place, nil))
	require.Zero(t, q.left())
}

func TestFileDeletedWhileQueuedIsNotIndexed(t *testing.T) {
	q := newQueue()
	q.add(storage.Object{Path: "a", SizeBytes: 1})
	q.add(storage.Object{Path: "b", SizeBytes: 1})
	q.remove("a")

	files, place := q.start(10)
	require.Equal(t, []storage.Object{{Path: "b", SizeBytes: 1}}, files)
	require.EqualValues(t, 2, place)
}
