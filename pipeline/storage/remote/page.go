package remote

import (
	"net/http"
	"path"
	"strings"
)

// IsPage reports whether an answer with header h has a web page as its body.
func IsPage(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/html", "application/xhtml+xml":
		return true
	}
	return false
}

// NamesPage reports whether a file with that path may be a web page.
func NamesPage(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".htm", ".html", ".xhtml":
		return true
	}
	return false
}
