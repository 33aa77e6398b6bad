package remote

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// Clean returns err without what might be secret in its text: user names and queries of URLs,
// signatures and tokens. Errors of net/http repeat the URL of a request, or for redirects and
// proxies other URLs; the text omits them. errors.Is and errors.As still find the wrapped errors,
// but they are not printed.
func Clean(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for shown := err; ; {
		of, ok := errors.AsType[*url.Error](shown)
		if !ok || of.Err == nil {
			break
		}
		text = strings.ReplaceAll(text, of.Error(), of.Err.Error())
		shown = of.Err
	}
	return &cleanError{text: CleanText(text), err: err}
}

type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string        { return e.text }
func (e *cleanError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *cleanError) As(target any) bool   { return errors.As(e.err, target) }

// CleanText is Clean for a text.
func CleanText(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		end := strings.IndexAny(text, " \t\r\n\"'<>")
		if end < 0 {
			end = len(text)
		}
		out.WriteString(cleanWord(text[:end]))
		if end < len(text) {
			end++
			out.WriteByte(text[end-1])
		}
		text = text[end:]
	}
	return named.ReplaceAllString(out.String(), "$1=…")
}

// cleanWord removes the query of a URL or path, and the user of a URL, from a word.
func cleanWord(word string) string {
	if cut := strings.IndexAny(word, "?#"); cut >= 0 && cut < len(word)-1 {
		colon := ""
		if word[len(word)-1] == ':' {
			colon = ":"
		}
		word = word[:cut] + colon
	}
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		return word
	}
	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if slash {
		path = "/" + path
	}
	return scheme + "://" + authority + path
}

// named matches secrets that follow their names, as in headers and files.
var named = regexp.MustCompile(`(?i)((?:x-amz-[a-z-]+|x-goog-[a-z-]+|\bsignature|\bsig|\b\w*token|\bauthorization|\bpassword|\b\w*secret\w*|\bcredential))\s*[=:]\s*(?:(?:Basic|Bearer)\s+)?[^\s&"]+`)
