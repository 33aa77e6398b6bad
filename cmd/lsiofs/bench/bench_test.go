package bench

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSpreadOfReturnsMedianAndExtremes(t *testing.T) {
	require.Equal(t, Spread{2, 1, 9}, spreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{3, 1, 9}, spreadOf([]float64{9, 1, 2, 4}))
	require.Equal(t, Spread{5, 5, 5}, spreadOf([]float64{5}))
}

func at(bytesPerSecond int64) reading { return reading{bytes: bytesPerSecond, elapsed: time.Second} }

func TestRatiosCompareSameRound(t *testing.T) {
	// The machine was half as fast in the second round.
	require.Equal(t, &Spread{0.5, 0.5, 0.5}, ratio([]reading{at(100), at(50)}, []reading{at(200), at(100)}))
	require.Nil(t, ratio([]reading{at(100)}, nil))
}

func TestConcurrentReaders(t *testing.T) {
	done := []readDone{
		{Bytes: 100, FirstBytes: 10, Began: 1, First: 6, Ended: 40, CPU: 3},
		{Bytes: 200, FirstBytes: 20, Began: 2, First: 5, Ended: 50, CPU: 4},
	}
	require.Equal(t, reading{bytes: 280, elapsed: 45, cpu: 7}, joined(done, true), "without the very first answer")
	require.Equal(t, reading{bytes: 300, elapsed: 49, cpu: 7}, joined(done, false))
	require.Equal(t, reading{bytes: 20, elapsed: 48}, joined([]readDone{{Bytes: 20, FirstBytes: 20, Began: 2, First: 5, Ended: 50}}, true),
		"where the first answer was all, it counts")
}

func TestRangesInFileOrderCoverSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type place struct {
			shard int32
			at    int64
		}
		want := map[place]int{}
		var extents []extent
		for range rapid.IntRange(1, 30).Draw(t, "extents") {
			x := extent{rapid.Int64Range(0, 40).Draw(t, "offset") * 8, rapid.Int32Range(0, 2).Draw(t, "shard"), 8}
			extents = append(extents, x)
			want[place{x.shard, x.offset}]++
		}
		most := rapid.Int32Range(8, 64).Draw(t, "most")
		got := map[place]int{}
		for _, x := range inFileOrder(extents, most) {
			require.LessOrEqual(t, x.size, most)
			for i := int64(0); i < int64(x.size); i += 8 {
				got[place{x.shard, x.offset + i}]++
			}
		}
		require.Equal(t, want, got)
	})
}

func TestPreadsCountRequestedAndReadBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	require.NoError(t, os.WriteFile(path, make([]byte, 10_000), 0o600))
	extents := []extent{{9_000, 0, 1_000}, {1, 0, 100}}
	p, err := newPreads([]string{path}, false, largest(extents))
	require.NoError(t, err)
	defer p.close()
	r, err := p.run(context.Background(), extents, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1_100, r.bytes)
	require.EqualValues(t, 1_100, r.readBytes)
	require.EqualValues(t, 2, r.reads)
	_, err = p.run(context.Background(), []extent{{9_999, 0, 2}}, 0)
	require.ErrorContains(t, err, "it ends before byte 10001")
}

func TestVerdicts(t *testing.T) {
	rows := []Row{
		{ID: "mount-1", Ratio: &Spread{0.5, 0.4, 0.9}, Against: "ceiling-1"},
		{ID: rowMountCold, Against: rowFioCold, GiBPerSecond: &Spread{1, 1, 1}},
		{ID: rowFioCold, Name: "fio", NotMeasured: "not measured: fio is not installed"},
	}
	for _, c := range []struct {
		name    string
		promise Promise
		verdict string
		why     string
	}{
		{"reached", Promise{Row: "mount-1", Figure: FigureRatio, AtLeast: 0.5}, VerdictOK, ""},
		{"short", Promise{Row: "mount-1", Figure: FigureRatio, AtLeast: 0.51}, VerdictShort, ""},
		{"too much", Promise{Row: "mount-1", Figure: FigureRatio, AtMost: 0.49}, VerdictShort, ""},
		{"no limit was measured", Promise{Row: rowMountCold, Figure: FigureRatio, AtLeast: 0.1}, VerdictNotMeasured, "fio is not installed"},
		{"no such row", Promise{Row: rowMountWhole, Figure: FigureRatio, AtLeast: 0.1}, VerdictNotMeasured, "does not apply"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.promise.judge(rows)
			require.Equal(t, c.verdict, got.Verdict)
			require.Contains(t, got.Why, c.why)
		})
	}
}

// TestEveryPromiseHasMeasuredRow guards against typing errors, which would make promises
// that can never fall short.
func TestEveryPromiseHasMeasuredRow(t *testing.T) {
	for sections, measured := range map[string]*scope{
		"tar jsonl npy": {shards: []string{"a.tar"}}, "zst gz lc0": {compressed: true, codec: "gzip", games: true, shards: []string{"a.jsonl.gz"}}, "files": {files: true, shards: []string{"a"}},
	} {
		s := &session{scope: measured}
		ids := map[string]bool{}
		for _, r := range s.rows() {
			ids[r.id] = true
		}
		for _, p := range Promises() {
			require.True(t, (p.AtLeast > 0) != (p.AtMost > 0), p.What)
			require.False(t, math.IsNaN(p.AtLeast))
			if !slices.Contains(strings.Fields(sections), string(p.Section)) {
				continue
			}
			require.True(t, ids[p.Row], "%s: no row %s", p.What, p.Row)
			require.Contains(t, rowsOf(Promises(), p.Section), p.Row)
		}
		for _, r := range s.rows() {
			if r.against != "" {
				require.True(t, ids[r.against], r.against)
			}
		}
	}
}
