package remote

import (
	"net/http"
	"strconv"
	"strings"
)

// statusText is a status as people know it, with the service's own word for it:
// "503 Service Unavailable (SlowDown)".
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

// maxCodeBytes bounds what is repeated of a service's own words; S3's longest code has
// 44 bytes.
const maxCodeBytes = 48

// codeWord is a code as it may be printed: one short word. Anything else may be a
// message, which can repeat what was sent.
func codeWord(code string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if len(code) > maxCodeBytes || strings.IndexFunc(code, func(r rune) bool { return !plain(r) }) >= 0 {
		return ""
	}
	return code
}
