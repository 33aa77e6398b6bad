package fs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// logged is a log that tests can read.
type logged struct {
	*slog.Logger
	out bytes.Buffer
}

func newLogged() *logged {
	l := &logged{}
	l.Logger = slog.New(slog.NewJSONHandler(&l.out, nil))
	return l
}

// lines returns what was logged since the last call.
func (l *logged) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.out.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		lines = append(lines, m)
	}
	l.out.Reset()
	return lines
}

// failure is a record that can't be read because a read of storage failed.
func failure(shard string, record, readAt int64, cause error) error {
	return &read.RecordError{
		Shard: shard, Ordinal: uint64(record), OffsetBytes: record * 100, SizeBytes: 100,
		Err: &storage.Error{Object: shard, OffsetBytes: readAt, SizeBytes: 4096, Err: cause},
	}
}

func TestAFaultIsOneLineAndThenACount(t *testing.T) {
	mountsNothing(t)
	faults := 1_000_000
	if testing.Short() { // a single goroutine adds them, ten times as slow under the race detector
		faults = 10_000
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		p := &problems{log: l.Logger}
		for i := range faults {
			p.note("worker-0.tar", failure("a.tar", int64(i%40), 0, syscall.EREMOTEIO))
		}
		lines := l.lines(t)
		require.Len(t, lines, 1)
		require.Equal(t, "a.tar", lines[0]["object"])
		require.Equal(t, "[0, 4096)", lines[0]["range"])
		require.Equal(t, "EREMOTEIO", lines[0]["errno"])
		require.Equal(t, 1.0, lines[0]["count"])
		require.Equal(t, "worker-0.tar: a.tar: record 0 at [0, 100): bytes [0, 4096): remote I/O error", lines[0]["error"])

		time.Sleep(problemAgain)
		p.note("worker-1.tar", failure("a.tar", 1, 0, syscall.EREMOTEIO))
		lines = l.lines(t)
		require.Len(t, lines, 1)
		require.EqualValues(t, faults+1, lines[0]["count"])

		p.note("worker-1.tar", failure("a.tar", 1, 0, syscall.EREMOTEIO))
		p.note("worker-1.tar", failure("a.tar", 1, 0, errors.New("something else")))
		require.Len(t, l.lines(t), 1, "another reason is another fault")
		p.flush()
		lines = l.lines(t)
		require.Len(t, lines, 1, "what was not told is told at the end")
		require.EqualValues(t, faults+2, lines[0]["count"])
		p.flush()
		require.Empty(t, l.lines(t))

		last, total := p.snapshot()
		require.EqualValues(t, faults+3, total)
		require.Len(t, last, 2)
		require.EqualValues(t, faults+2, last[0].Count)
	})
}

func TestManyFaultsAreFewLinesAndNoneIsLost(t *testing.T) {
	mountsNothing(t)
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		p := &problems{log: l.Logger}
		const faults = 3 * problemsKept
		for i := range faults {
			p.note("worker-0.tar", failure("a.tar", 0, int64(i)*4096, syscall.EIO))
		}
		require.Len(t, l.lines(t), problemLines)
		last, total := p.snapshot()
		require.EqualValues(t, faults, total)
		require.Len(t, last, problemsShown)
		require.Contains(t, last[problemsShown-1].Text, fmt.Sprintf("[%d, ", (faults-1)*4096))
		require.Len(t, p.faults, problemsKept)

		time.Sleep(problemWindow)
		p.note("worker-0.tar", failure("a.tar", 0, (faults-1)*4096, syscall.EIO))
		lines := l.lines(t)
		require.Len(t, lines, 1, "it had not been logged for want of room")
		require.Equal(t, 2.0, lines[0]["count"])
		p.flush()
		lines = l.lines(t)
		require.Len(t, lines, problemsShown+1)
		more := lines[problemsShown]
		require.Equal(t, "more reads failed", more["msg"])
		require.EqualValues(t, faults-problemLines-1-problemsShown, more["count"])
	})
}

func TestErrorDescription(t *testing.T) {
	mountsNothing(t)
	x := describe("f", &read.RecordError{Shard: "b", Ordinal: 7, OffsetBytes: 70, SizeBytes: 9, Err: read.ErrTimeout})
	require.Equal(t, "b", x.Object)
	require.EqualValues(t, 70, x.OffsetBytes)
	require.EqualValues(t, 9, x.SizeBytes)
	require.Equal(t, "EIO", x.Errno)
	x = describe("f", errors.New("no more is known"))
	require.Empty(t, x.Object)
	require.Equal(t, "f: no more is known", x.Text)
}
