package filter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
)

// killedChild filters, and exits, as with kill -9, before the at-th call of its commits.
func killedChild(src, dst, at string) {
	kill, _ := strconv.Atoi(at)
	c := Default()
	c.Source, c.Destination, c.Command, c.Processes, c.Timeout = src, dst, killedFilter, 1, time.Minute
	c.Format.Name = "lines"
	c.Said, c.Warn, c.Round, c.Found = func(string, string) {}, func(string) {}, func(Counts) {}, func(*discover.Selection) {}
	calls := 0
	c.step = func() {
		if calls == kill {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			time.Sleep(time.Hour)
		}
		calls++
	}
	if err := c.Validate(); err != nil {
		panic(err)
	}
	if _, err := Run(context.Background(), c); err != nil {
		panic(err)
	}
	fmt.Println(calls)
}

var killedFilter = []string{"tr", "a-z", "A-Z"}

// A process that is killed between any two calls leaves complete results and nothing else, and the
// next one does only the remaining work.
func TestKilledFilterLosesNothingAndRecordsNoUnfinishedWork(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.txt": "one\n", "b/b.txt": "two\n", "c.txt": "three\n"}
	want := map[string]string{"a.txt": "ONE\n", "b/b.txt": "TWO\n", "c.txt": "THREE\n"}
	for at := range 14 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, files)
			c := w.config(ByPipe, killedFilter...)
			if at%2 == 1 { // with results of another filter
				before := c
				before.Name = "before"
				_, err := w.run(before)
				require.NoError(t, err)
			}
			out, err := exec.Command(os.Args[0], "killed", w.src, w.dst, strconv.Itoa(at)).CombinedOutput()
			if err != nil {
				require.ErrorContains(t, err, "signal: killed", string(out))
			} else {
				calls, err := strconv.Atoi(string(out[:len(out)-1]))
				require.NoError(t, err, string(out))
				require.LessOrEqual(t, calls, at, "it was to be killed")
			}
			for name, text := range want {
				if made, err := os.ReadFile(filepath.Join(w.dst, name)); err == nil {
					require.Equal(t, text, string(made), "what has a name is whole")
				}
			}
			counts, err := w.run(c)
			require.NoError(t, err)
			require.Equal(t, want, w.made())
			require.Equal(t, uint64(3), counts.Filtered+counts.Unchanged)
			counts, err = w.run(c)
			require.NoError(t, err)
			require.Equal(t, uint64(3), counts.Unchanged)
		})
	}
}

// A process is killed while it replaces the results of another filter, and then the sources vanish:
// its results are deleted too, whichever filter made them.
func TestMirrorDeletesResultsOfKilledFilter(t *testing.T) {
	t.Parallel()
	for at := range 10 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"a.txt": "one\n", "b/b.txt": "two\n", "c.txt": "three\n"})
			c := w.config(ByPipe, killedFilter...)
			before := c
			before.Command = []string{"tr", "a-z", "b-za"}
			_, err := w.run(before)
			require.NoError(t, err)
			// With the highest numbers it is not killed.
			_, _ = exec.Command(os.Args[0], "killed", w.src, w.dst, strconv.Itoa(at)).CombinedOutput()
			require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt")))
			require.NoError(t, os.RemoveAll(filepath.Join(w.src, "b")))
			c.Mirror = true
			_, err = w.run(c)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"c.txt": "THREE\n"}, w.made())
			require.Empty(t, w.warnings)
		})
	}
}
