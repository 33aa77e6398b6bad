package mounting

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

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
