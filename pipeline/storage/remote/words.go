package remote

import (
	"net/http"
	"strconv"
	"strings"
)

// statusText returns a status with its usual text and the service's own code: "503 Service
// Unavailable (SlowDown)".
func statusText(status int, code string) string {
	text := strconv.Itoa(status)
	if known := http.StatusText(status); known != "" {
		text += " " + known
	}
	if code = codeWord(code); code != "" {
		text += " (" + code + ")"
	}
	return text
}

// maxCodeBytes bounds how much of a service's own code is repeated; S3's longest code has 44 bytes.
const maxCodeBytes = 48

// codeWord returns a code if it may be printed, that is, if it is one short word. Anything else may
// be a message that repeats what was sent, and gives "".
func codeWord(code string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if len(code) > maxCodeBytes || strings.IndexFunc(code, func(r rune) bool { return !plain(r) }) >= 0 {
		return ""
	}
	return code
}
