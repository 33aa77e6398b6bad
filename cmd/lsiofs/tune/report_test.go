package tune

import (
	"strings"
	"testing"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

func TestTheTableOfMeasurements(t *testing.T) {
	var b strings.Builder
	cells := []profile.Cell{{ReadBytes: 4096, Depth: 1, BytesPerSecond: 1 << 27}, {ReadBytes: 4096, Depth: 128, BytesPerSecond: 3 << 28},
		{ReadBytes: 4 << 20, Depth: 1, BytesPerSecond: 12 << 30}}
	cellTable(&b, cells, profile.Profile{ReadBytes: 4 << 20, Depth: 128, InFlightBytes: 4 << 20})
	goldentest.Equal(t, "tune-table.txt", b.String())
}
