package terminal

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// The name contains a one-byte control character, one that reverses text, and an escape sequence.
func TestLogEscapesTerminalControls(t *testing.T) {
	const name = "a\u009b31m\u202eb\x1b[2Jc"
	for _, results := range []bool{false, true} {
		for _, format := range []LogFormat{"", LogText, LogJSON} {
			var out bytes.Buffer
			u := &UI{Err: &out, JSON: results}
			u.Logger(slog.LevelInfo, format).Info("a read failed", "object", name)
			for _, r := range []rune{0x9b, 0x202e, 0x1b} {
				require.NotContains(t, out.String(), string(r), "--json=%v --log-format=%q", results, format)
			}
			if format == LogJSON || format == "" && results {
				var line struct{ Object string }
				require.NoError(t, json.Unmarshal(out.Bytes(), &line))
				require.Equal(t, name, line.Object)
			}
		}
	}
}
