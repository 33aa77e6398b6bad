package read

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestBytesDoNotDependOnStorageProfile(t *testing.T) {
	for name, s := range readtest.Shapes() {
		d := readtest.Make(t, s)
		seq := readtest.ReservoirOrder(3, d.Index, 3, 90)
		for like, p := range readtest.ExtremeProfiles() {
			t.Run(name+"/"+like, func(t *testing.T) {
				storage := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
				f, err := newFetcher(d.Index, storage, Options{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 32, Profile: p})
				require.NoError(t, err)
				defer func() { require.NoError(t, f.Close()) }()
				readEpochs(t, d, f, seq, 1)
				if s.Codec == "" && s.MaxBytes > 1000 && p.ReadBytes < 8<<10 {
					require.Greater(t, storage.Reads.Load(), 2*int64(f.Stats().PiecesRead), "pieces are cut")
				}
			})
		}
	}
}

func TestForecastsUseStorageProfile(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 200, MaxBytes: 3000, GapBytes: 9000})
	for name, p := range readtest.ExtremeProfiles() {
		t.Run(name, func(t *testing.T) {
			_, forecast, read := forecastAndRead(t, d, readtest.InOrder(d.Index), Options{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 32, Profile: p})
			require.Equal(t, read, forecast)
		})
	}
}

func TestUnknownStorageProfileIsRefused(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 1, MaxBytes: 10})
	_, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{MemoryBytes: 1 << 20, ReadTimeout: time.Minute, PieceBytes: 1, PieceRecords: 1,
		Profile: storage.Profile{Kind: storage.KindSSD, ReadBytes: 1}})
	require.ErrorContains(t, err, "storage profile: read_bytes (1) must be between")
}
