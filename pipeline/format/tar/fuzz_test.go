package tar_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// fixSums corrects the checksum of every block that could be a header, so that fuzzing gets past
// it.
func fixSums(shard []byte) []byte {
	for b := shard; len(b) >= 512; b = b[512:] {
		if bytes.HasPrefix(b[257:], []byte("ustar")) {
			naiveChecksum(b[:512:512])
		}
	}
	return shard
}

func FuzzIndex(f *testing.F) {
	for _, s := range shards() {
		f.Add(s.Bytes)
	}
	f.Fuzz(func(t *testing.T, shard []byte) {
		shard = fixSums(bytes.Clone(shard))
		if len(shard) == 0 {
			return
		}
		want := naive(shard)
		records, s, err := index(t, shard)
		if want.Refused {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want.Records, records)
		require.Equal(t, want.Damaged, s.Damage != nil)
	})
}

func FuzzRename(f *testing.F) {
	for i, s := range shards() {
		f.Add(s.Bytes, uint64(i)<<(9*i))
	}
	f.Fuzz(func(t *testing.T, shard []byte, position uint64) {
		shard = fixSums(bytes.Clone(shard))
		if len(shard) == 0 {
			return
		}
		_, _ = tar.Format{}.Rename(nil, shard, position)
		records, _, err := index(t, shard)
		if err != nil {
			return
		}
		p := strconv.FormatUint(position, 10)
		for _, r := range records {
			record := shard[r.OffsetBytes:][:r.SizeBytes]
			renamed, err := tar.Format{}.Rename(nil, record, position)
			require.NoError(t, err)
			require.True(t, bytes.Equal(naiveRename(record, p), renamed))
			grown := int64(0)
			if r.Growth != nil {
				grown = r.Growth[len(p)-1]
			}
			require.Equal(t, r.SizeBytes+grown, int64(len(renamed)))
		}
	})
}
