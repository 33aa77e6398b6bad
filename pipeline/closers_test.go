package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

var errStep = errors.New("the step fails")

// mappedFrom are the files below dir that this process has mapped.
func mappedFrom(t *testing.T, dir string) (files []string) {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		if _, file, ok := strings.Cut(line, dir); ok {
			files = append(files, strings.TrimSpace(file))
		}
	}
	return files
}

// TestFailedOpenLeaksNothingAtAnyStep lets each step of opening a dataset fail after
// it has run, one after the other, until there is no further step.
func TestFailedOpenLeaksNothingAtAnyStep(t *testing.T) {
	compressed, folders := testSpec(t, makeLines(t)), testSpec(t, makeFiles(t, 200))
	compressed.Read = spec.ReadSpool
	folders.Format.Name, folders.Read = "files", spec.ReadGather
	for name, s := range map[string]spec.Spec{"compressed": compressed, "directories": folders} {
		t.Run(name, func(t *testing.T) {
			d, err := Open(context.Background(), s, Options{}) // the runtime opens what it keeps open
			require.NoError(t, err)
			require.Equal(t, name == "directories", len(mappedFrom(t, s.IndexDir)) > 0, "their table is a file that is mapped")
			require.NoError(t, d.Close())
			descriptors, ignored := openDescriptors(t), goleak.IgnoreCurrent()
			nothingOpen := func(step string) {
				goleak.VerifyNone(t, ignored)
				require.Eventually(t, func() bool { return openDescriptors(t) <= descriptors }, time.Minute, time.Millisecond, "descriptors, %s failed", step)
				require.Empty(t, mappedFrom(t, s.IndexDir), "%s failed", step)
			}
			var failed []string
			for n := 0; ; n++ {
				var taken []string
				d, err := Open(context.Background(), s, Options{Ahead: true, StartFetcher: true, afterStep: func(step string) error {
					if taken = append(taken, step); len(taken) > n {
						return errStep
					}
					return nil
				}})
				if err == nil {
					require.Equal(t, failed, taken)
					require.NoError(t, d.Close())
					nothingOpen("nothing")
					break
				}
				require.ErrorIs(t, err, errStep)
				last := taken[len(taken)-1]
				require.ErrorContains(t, err, last+": the step fails")
				require.Len(t, taken, n+1, "nothing is opened behind what fails")
				failed = append(failed, last)
				nothingOpen(last)
			}
			require.Equal(t, []string{"engine", "credentials", "target", "profile", "storage", "catalog", "records", "part", "cache", "fetcher", "source", "orders", "ahead"}, failed)
		})
	}
}

// closing records when it is closed.
type closing struct {
	storage.Storage
	closed *[]string
}

func (c closing) Close() error {
	*c.closed = append(*c.closed, "storage")
	return c.Storage.Close()
}

// Things are closed in the reverse order of opening: the generation before the mount, and within
// both the latest first.
func TestDatasetIsClosedInReverseOrder(t *testing.T) {
	var closed []string
	s := testSpec(t, makeLines(t))
	d, err := Open(context.Background(), s, Options{Ahead: true, Faults: func(below storage.Storage) storage.Storage { return closing{below, &closed} }})
	require.NoError(t, err)
	note := func(o *opened, names ...string) {
		require.Len(t, o.shuts, len(names))
		for i, shut := range o.shuts {
			o.shuts[i] = func() error { closed = append(closed, names[i]); return shut() }
		}
	}
	note(&d.mount.opened, "engine", "retry")
	note(&d.current.opened, "catalog", "fetcher", "source", "ahead")
	require.NoError(t, d.Close())
	want := []string{"ahead", "source", "fetcher", "catalog", "retry", "storage", "engine"}
	require.Equal(t, want, closed)
	require.NoError(t, d.Close())
	require.Equal(t, want, closed, "once")
}

func TestFailedCloseKeepsNothingElseOpen(t *testing.T) {
	var o opened
	var shut []string
	one := func(name string, err error) step {
		return step{name, func() (func() error, error) {
			return func() error { shut = append(shut, name); return err }, nil
		}}
	}
	first, second := errors.New("first"), errors.New("second")
	require.NoError(t, o.take(one("a", first), step{"nothing", func() (func() error, error) { return nil, nil }}, one("b", nil)))
	err := o.take(one("c", second), step{"fails", func() (func() error, error) { return nil, errStep }}, one("d", nil))
	require.Equal(t, errStep, err)
	require.Empty(t, shut, "who has taken the steps closes")
	err = o.close()
	require.ErrorIs(t, err, first)
	require.ErrorIs(t, err, second)
	slices.Reverse(shut)
	require.Equal(t, []string{"a", "b", "c"}, shut)
	require.NoError(t, o.close())
	require.Len(t, shut, 3)
}

// A second generation of the same mount gives the same bytes, through the same storage, and
// outlives the first.
func TestEpochsOfOneMountOpenAndClose(t *testing.T) {
	s := testSpec(t, makeLines(t))
	m, err := openMount(t.Context(), s, Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	read := func(g *generation) []byte {
		set, err := g.set(1, nil, s.Deal)
		require.NoError(t, err)
		return readFile(t, set, 1, stream.Data, 100_000)
	}
	first, err := openGeneration(t.Context(), m)
	require.NoError(t, err)
	want, lent := read(first), m.files
	require.NotEmpty(t, want)
	second, err := openGeneration(t.Context(), m)
	require.NoError(t, err)
	require.Same(t, lent, m.files)
	require.Equal(t, want, read(second), "both are open")
	require.NoError(t, first.close())
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = openGeneration(cancelled, m)
	require.ErrorIs(t, err, context.Canceled)
	set, err := second.set(2, nil, s.Deal)
	require.NoError(t, err)
	require.NotEmpty(t, readFile(t, set, 0, stream.Data, 100_000), "the first is closed, and one could not be opened")
	require.NoError(t, second.close())
	third, err := openGeneration(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, want, read(third), "there was none for a while")
	require.NoError(t, third.close())
	require.NoError(t, m.close())
}
