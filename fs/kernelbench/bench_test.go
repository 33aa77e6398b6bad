package kernelbench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/fs/rings/ringstest"
)

// The test program can also act as a reader: it reads a file, with a read size, from an offset on,
// for some time.
const asReader = "LSIOFS_KERNELBENCH_READER"

func TestMain(m *testing.M) {
	if job := os.Getenv(asReader); job != "" {
		n, err := read(job)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(n)
		return
	}
	os.Exit(m.Run())
}

func read(job string) (total int64, err error) {
	var path string
	var size, from, nanos int64
	if _, err := fmt.Sscan(job, &path, &size, &from, &nanos); err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	p := make([]byte, size)
	for began := time.Now(); time.Since(began).Nanoseconds() < nanos; {
		n, err := f.ReadAt(p, from+total)
		if total += int64(n); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// readers reads a file in several processes, and returns bytes per second.
func readers(t testing.TB, path string, count, size int, each time.Duration) float64 {
	exe, err := os.Executable()
	require.NoError(t, err)
	outs := make([]io.Reader, count)
	cmds := make([]*exec.Cmd, count)
	for i := range cmds {
		cmds[i] = exec.Command(exe)
		cmds[i].Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d", asReader, path, size, i<<34, each))
		cmds[i].Stderr = os.Stderr
		outs[i], err = cmds[i].StdoutPipe()
		require.NoError(t, err)
	}
	for _, c := range cmds {
		require.NoError(t, c.Start())
	}
	var total int64
	for i, c := range cmds {
		said, err := io.ReadAll(outs[i])
		require.NoError(t, err)
		require.NoError(t, c.Wait())
		n, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64)
		require.NoError(t, err)
		total += n
	}
	return float64(total) / each.Seconds()
}

// setting changes a kernel setting until the test ends; it returns false if there is no such
// setting.
func setting(t testing.TB, path, value string) bool {
	was, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(value), 0), "it takes root")
	t.Cleanup(func() { require.NoError(t, os.WriteFile(path, was, 0)) })
	return true
}

const pagesLimit = "/proc/sys/fs/fuse/max_pages_limit"

func TestEveryWayReadsSameBytes(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("it needs root, to mount")
		}
		t.Skip("it needs root, to mount")
	}
	ways := []Way{{Pages: 256}, {Pages: 256, Gathers: true}, {Pages: 256, Clones: true}}
	if err := ringstest.SwitchOn(); err != nil {
		require.Empty(t, os.Getenv("CI"), err)
		t.Log(err)
	} else {
		ways = append(ways, Way{Pages: 256, Uring: true})
	}
	for _, way := range ways {
		path, stop, err := File(t.TempDir(), way)
		require.NoError(t, err)
		f, err := os.Open(path)
		require.NoError(t, err)
		for _, at := range []int64{0, 4096, 3 << 20, 1 << 33} {
			for _, size := range []int{4096, 100_000, 1 << 20} {
				got, want := make([]byte, size), make([]byte, size)
				_, err := f.ReadAt(got, at)
				require.NoError(t, err)
				from := at % int64(dataBytes-size) &^ (pageBytes - 1)
				for i := range want {
					want[i] = byte((from + int64(i)) * 7)
				}
				require.True(t, bytes.Equal(want, got), "%+v: %d bytes at %d", way, size, at)
			}
		}
		require.NoError(t, f.Close())
		require.NoError(t, stop())
	}
}

// BenchmarkWays measures all ways in turn, in rounds, and prints medians in GiB/s.
func BenchmarkWays(b *testing.B) {
	type row struct {
		name    string
		way     Way
		size    int
		readers int
		rates   []float64
	}
	var rows []*row
	large := setting(b, pagesLimit, "1024")
	uring := ringstest.SwitchOn() == nil
	for _, n := range []int{1, 4} {
		for _, size := range []int{4 << 10, 16 << 10, 128 << 10, 1 << 20} {
			rows = append(rows, &row{"device", Way{Pages: 256}, size, n, nil}, &row{"device, gathered", Way{Pages: 256, Gathers: true}, size, n, nil},
				&row{"clones", Way{Pages: 256, Clones: true}, size, n, nil})
			if uring {
				rows = append(rows, &row{"io_uring, gathered", Way{Pages: 256, Uring: true}, size, n, nil})
			}
		}
		if large {
			rows = append(rows, &row{"device", Way{Pages: 1024}, 4 << 20, n, nil})
		}
		if large && uring {
			rows = append(rows, &row{"io_uring, gathered", Way{Pages: 1024, Uring: true}, 4 << 20, n, nil})
		}
	}
	for range 5 * b.N {
		for _, r := range rows {
			path, stop, err := File(b.TempDir(), r.way)
			require.NoError(b, err)
			r.rates = append(r.rates, readers(b, path, r.readers, r.size, 300*time.Millisecond))
			require.NoError(b, stop())
		}
	}
	for _, r := range rows {
		slices.Sort(r.rates)
		gib := func(i int) float64 { return r.rates[i] / (1 << 30) }
		fmt.Printf("%d readers, %4d KiB, %-20s %6.2f GiB/s (%.2f–%.2f)\n", r.readers, r.size>>10, r.name, gib(len(r.rates)/2), gib(0), gib(len(r.rates)-1))
	}
}
