package tune

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

func TestMeasurementTable(t *testing.T) {
	var b strings.Builder
	cells := []filesystem.Measurement{{ReadBytes: 4096, Depth: 1, BytesPerSecond: 1 << 27}, {ReadBytes: 4096, Depth: 128, BytesPerSecond: 3 << 28},
		{ReadBytes: 4 << 20, Depth: 1, BytesPerSecond: 12 << 30}}
	cellTable(&b, cells, storage.Profile{ReadBytes: 4 << 20, Depth: 128, InFlightBytes: 4 << 20})
	goldentest.Equal(t, "tune-table.txt", b.String())
}

func TestUnmeasuredSettingsAreDescribed(t *testing.T) {
	p := storage.DefaultProfile(storage.KindSSD)
	require.Equal(t, "32 MiB per reader, 64 MiB queued; stretches of 256 KiB to 8.0 MiB; decoders by 128 KiB", aheadText(p.Ahead))
	require.Equal(t, "one shard per core; reads of up to 1.0 MiB, 16 MiB under way; gaps above 24 KiB are skipped", passText(p.Pass))
	p.Pass.Shards = 32
	require.Contains(t, passText(p.Pass), "32 shards at a time; ")
}
