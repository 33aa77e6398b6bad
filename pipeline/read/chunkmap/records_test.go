package chunkmap

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
	err.Err = errors.New("too late")
	require.EqualError(t, err, "a.tar: record 3 at [600, 700): too late")
}

// ten is a sequence of records 0 … 9.
type ten struct{}

func (ten) Len() uint64                        { return 10 }
func (ten) Records(k uint64, dst []uint64) int { panic("not asked for") }

func TestRecordsOutsideSequenceAreNotRequested(t *testing.T) {
	for _, c := range []struct {
		k    uint64
		n    int
		want int
	}{{0, 1, 1}, {0, 10, 10}, {3, 100, 7}, {9, 1, 1}} {
		n, err := Clip(ten{}, c.k, c.n)
		require.NoError(t, err)
		require.Equal(t, c.want, n)
	}
	_, err := Clip(ten{}, 10, 2)
	require.EqualError(t, err, "lend 2 records from 10 on: the sequence has 10")
	_, err = Clip(ten{}, 3, 0)
	require.EqualError(t, err, "lend 0 records from 3 on: the sequence has 10")
}
