package integration

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawnCrops is how many ways to cut crops are drawn.
var drawnCrops = flag.Int("drawn-crops", 8, "ways to cut crops that are drawn at random")

// drawCrops draws flags for crops of makeSeveral's hierarchies, and writes origins for them to a
// file.
func drawCrops(t *testing.T, dice *rand.Rand, list string) []string {
	t.Helper()
	edges := map[string]int{"time": 9, "y": 12, "x": 20} // of the smaller hierarchy
	var crop, stride, step, selected, wrap []string
	one := func() bool { return dice.IntN(3) == 0 }
	flags := []string{}
	var lows, rooms []int // where crops may begin, along each dimension
	for _, dim := range []string{"time", "y", "x"} {
		begin, end := 0, edges[dim]
		wraps := dim != "time" && one() // the dimension must have the same length in all cubes
		switch {
		case wraps:
			wrap = append(wrap, dim)
		case one():
			begin = dice.IntN(end / 2)
			if dice.IntN(2) == 0 {
				end -= dice.IntN(end / 3)
			}
			selected = append(selected, "--select", fmt.Sprintf("%s=%d:%d", dim, begin, end))
		}
		k := 1
		if one() {
			k += dice.IntN(2)
			step = append(step, fmt.Sprintf("%s=%d", dim, k))
		}
		n := 1 + dice.IntN((end-begin-1)/k+1)
		crop = append(crop, fmt.Sprintf("%s=%d", dim, n))
		lows, rooms = append(lows, begin), append(rooms, end-begin-(n-1)*k)
		if wraps {
			rooms[len(rooms)-1] = end
		}
		if dice.IntN(4) > 0 {
			stride = append(stride, fmt.Sprintf("%s=%d", dim, 1+dice.IntN(edges[dim]/2)))
		}
	}
	add := func(name string, values []string) {
		if len(values) > 0 {
			flags = append(flags, name, strings.Join(values, ","))
		}
	}
	add("--crop", crop)
	add("--stride", stride)
	add("--step", step)
	add("--wrap", wrap)
	flags = append(flags, selected...)
	arrays, listed := dice.IntN(4), one()
	switch arrays {
	case 0:
		flags = append(flags, "--array", "a/t2m")
	case 1:
		flags = append(flags, "--array", "wind,a/t2m", "--stack")
	case 2:
		flags = append(flags, "--array", "level,o=oro", "--select", "level=2")
	default:
		flags = append(flags, "--array", "w=wind,level,t=a/t2m,oro")
	}
	switch listed = listed && arrays != 2; {
	case listed:
		writeOrigins(t, dice, list, lows, rooms)
		flags = append(flags, "--crops", list)
	case one():
		flags = append(flags, "--edge", "cover")
	}
	if dice.IntN(2) == 0 && (!listed || len(stride) > 0) {
		flags = append(flags, "--jitter")
	}
	if one() {
		flags = append(flags, "--missing", "skip")
	}
	return flags
}

// writeOrigins writes an npy file with rows of a cube's number and an origin. Some occur twice.
func writeOrigins(t *testing.T, dice *rand.Rand, path string, lows, rooms []int) {
	t.Helper()
	rows := 5 + dice.IntN(60)
	head := fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d, %d), }", rows, 1+len(lows))
	b := append([]byte("\x93NUMPY\x01\x00\x76\x00"), fmt.Sprintf("%-117s\n", head)...)
	for range rows {
		b = binary.LittleEndian.AppendUint64(b, dice.Uint64N(2))
		for d, low := range lows {
			b = binary.LittleEndian.AppendUint64(b, uint64(low+dice.IntN(rooms[d])))
		}
	}
	require.NoError(t, os.WriteFile(path, b, 0o644))
}

// Whatever is drawn, all workers' bytes equal the reference's, also when starting in the middle.
func TestRandomCropsEqualReference(t *testing.T) {
	var dir string
	for _, path := range stores(t, makeSeveral) {
		dir = filepath.Dir(path)
	}
	for i := range *drawnCrops {
		dice := rand.New(rand.NewPCG(*drawSeed, 1000+uint64(i)))
		flags := drawCrops(t, dice, filepath.Join(t.TempDir(), "origins.npy"))
		s := settings{
			Seed: dice.Uint64() >> 1, Epoch: uint64(dice.IntN(3)), Shuffle: []string{"none", "full", "block", "reservoir"}[dice.IntN(4)],
			ShuffleSize: 1 + dice.IntN(60), Lanes: []int{1, 2, 4, 8}[dice.IntN(4)], Groups: 1, ChunkBytes: 1 << (8 + dice.IntN(12)), ChunkRecords: 1 + dice.IntN(9),
			Workers: 1 + dice.IntN(3), Batch: 1 + dice.IntN(3), Deal: "interleaved", Tail: []string{"keep", "drop", "pad"}[dice.IntN(3)],
		}
		t.Run(fmt.Sprintf("%d %s %+v", i, strings.Join(flags, " "), s), func(t *testing.T) {
			t.Parallel()
			d := cropsOf(filepath.Join(dir, "all"), flags...)
			ref := newReference(t, d)
			for w := range s.Workers {
				args := append([]string{"cat", d.dir, "--worker", fmt.Sprint(w), "--epoch", fmt.Sprint(s.Epoch)}, append(d.flags, s.flags()...)...)
				r := tool(t, args...)
				require.Zero(t, r.code, "%s\n-drawseed %d draws it again", r.stderr, *drawSeed)
				requireSameBytes(t, ref.data(s, w), r.stdout, "worker %d", w)
			}
		})
	}
}
