package remote

import "regexp"

// Clean is err with what might be secret taken out of its text: user names and queries
// of URLs, signatures and tokens. Errors of net/http have URLs in them, and those of
// redirects and proxies have URLs of others. errors.Is and As work as before.
func Clean(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := CleanText(text)
	if clean == text {
		return err
	}
	return &cleaned{text: clean, err: err}
}

// CleanText is Clean for a text.
func CleanText(text string) string {
	text = userInfo.ReplaceAllString(text, "$1")
	text = query.ReplaceAllString(text, "$1")
	return named.ReplaceAllString(text, "$1=…")
}

var (
	userInfo = regexp.MustCompile(`(://)[^\s/?#"]*@`)
	query    = regexp.MustCompile(`(://[^\s?"]*)\?[^\s"]*`)
	named    = regexp.MustCompile(`(?i)((?:x-amz-[a-z-]+|x-goog-[a-z-]+|\bsignature|\bsig|\b\w*token|\bauthorization|\bpassword|\b\w*secret\w*|\bcredential))\s*[=:]\s*(?:(?:Basic|Bearer)\s+)?[^\s&"]+`)
)

type cleaned struct {
	text string
	err  error
}

func (e *cleaned) Error() string { return e.text }
func (e *cleaned) Unwrap() error { return e.err }
