package mounting

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/servicetest"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

func TestServiceManagerWaitsWhileIndexingProgresses(t *testing.T) {
	m, address := servicetest.Listen(t, false)
	t.Setenv("NOTIFY_SOCKET", address)
	var inner recorded
	r := withService(&inner)
	pass := func(at time.Duration, bytes int64) catalog.Progress {
		return catalog.Progress{Shards: 1, ShardsTotal: 4, Bytes: bytes, BytesTotal: 400 << 20, Records: 10, Elapsed: at}
	}
	r.Progress(catalog.Progress{Elapsed: 5 * time.Second})
	m.RequireSilent() // nothing has begun
	r.Progress(pass(6*time.Second, 100<<20))
	said := m.Next()
	require.Equal(t, "120000000", said["EXTEND_TIMEOUT_USEC"])
	require.Contains(t, said["STATUS"], "indexing: 1 of 4 shards, 100 MiB of 400 MiB (25 %)")
	r.Progress(pass(6*time.Second+100*time.Millisecond, 200<<20))
	m.RequireSilent() // at most one message a second
	r.Progress(pass(8*time.Second, 200<<20))
	require.Contains(t, m.Next()["STATUS"], "50 %")
	r.Progress(pass(80*time.Second, 200<<20))
	m.RequireSilent() // it does not move
	r.Progress(catalog.Progress{Records: 40, Elapsed: 81 * time.Second, Done: true})
	require.Equal(t, "indexed: 40 records; mounting", m.Next()["STATUS"])
	r.Ended(errors.New("one line\nand another\n"))
	require.Equal(t, map[string]string{"STOPPING": "1", "STATUS": "one line; and another; "}, m.Next())
	require.Equal(t, append(strings.Split(strings.Repeat("progress ", 6), " ")[:6], "ended"), inner.what, "others are told, too")
}

func TestServiceManagerGetsPrintableNames(t *testing.T) {
	m, address := servicetest.Listen(t, false)
	r := &serviceReporter{socket: address}
	r.notify("STATUS=a reader waits for the disk: shard a\x1b[2J\u202e.tar\nREADY=1")
	require.Equal(t, map[string]string{"STATUS": `a reader waits for the disk: shard a\x1b[2J\u202e.tar; READY=1`}, m.Next())
}

func TestDaemonLogWarningsReachCaller(t *testing.T) {
	var file bytes.Buffer
	var told []string
	log := forwardWarnings(slog.New(slog.NewTextHandler(&file, nil)), func(text string) { told = append(told, text) })
	log.Info("for the log alone")
	log.Debug("for nobody")
	log.Warn("plain")
	log.With("source", "web").Warn("the index is not stored", "error", errors.New("no space left"), "count", 3)
	require.Equal(t, []string{"plain", "the index is not stored (source=web, error='no space left', count=3)"}, told)
	require.Regexp(t, `(?s)^time=\S+ level=INFO msg="for the log alone"\n.* msg=plain\n.* msg="the index is not stored" source=web error="no space left" count=3\n$`, file.String())
}
