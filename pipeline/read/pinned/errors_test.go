package pinned

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestRecordErrorNamesItsShardOnce(t *testing.T) {
	cause := &storage.Error{Object: "a.tar", OffsetBytes: 512, SizeBytes: 1024, Err: errors.New("input/output error")}
	err := &RecordError{Shard: "a.tar", Ordinal: 3, OffsetBytes: 600, SizeBytes: 100, Err: cause}
	require.EqualError(t, err, "a.tar: record 3 at [600, 700): bytes [512, 1536): input/output error")
	err.OffsetBytes, err.SizeBytes = 512, 1024
	require.EqualError(t, err, "a.tar: record 3 at [512, 1536): input/output error", "what was read is the record")
	err.OffsetBytes, err.SizeBytes = 600, 100
	require.ErrorIs(t, err, cause)
	err.Err = ErrTimeout
	require.EqualError(t, err, "a.tar: record 3 at [600, 700): storage has not answered within --read-timeout")
}
