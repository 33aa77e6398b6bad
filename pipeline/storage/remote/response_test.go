package remote

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func response(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

func TestResponseIsDescribedByItsHeader(t *testing.T) {
	const date = "Sat, 21 Nov 2026 08:00:00 GMT"
	a := AnswerOf(response(206, "abcde", "Content-Range", "bytes 2-6/9", "ETag", `"x"`, "Last-Modified", date, "Content-Encoding", "Identity"), `"x"`)
	require.Equal(t, [4]int64{2, 7, 9, 5}, [4]int64{a.Begin, a.End, a.Total, a.LengthBytes})
	require.EqualValues(t, `"x"`, a.Validator)
	require.Empty(t, a.Encoding)

	for name, answer := range map[string]Answer{
		"a range twice":  AnswerOf(response(206, "", "Content-Range", "bytes 2-6/9", "Content-Range", "bytes 2-6/9"), ""),
		"several ranges": AnswerOf(response(206, "", "Content-Range", "bytes 2-6/9", "Content-Type", "multipart/byteranges; boundary=x"), ""),
		"another unit":   AnswerOf(response(206, "", "Content-Range", "lines 2-6/9"), ""),
		"no range":       AnswerOf(response(206, ""), ""),
	} {
		require.Equal(t, [3]int64{-1, -1, -1}, [3]int64{answer.Begin, answer.End, answer.Total}, name)
	}
	require.Equal(t, "gzip, br", AnswerOf(response(200, "", "Content-Encoding", "gzip", "Content-Encoding", "br"), "").Encoding)
}

// Only validators of one kind are compared: if a request is for a date, the answer's ETag is
// ignored.
func TestOnlyValidatorsOfSameKindAreCompared(t *testing.T) {
	const date, dated = "Sat, 21 Nov 2026 08:00:00 GMT", Validator("modified:Sat, 21 Nov 2026 08:00:00 GMT")
	both := []string{"ETag", `"x"`, "Last-Modified", date}
	weak := []string{"ETag", `W/"x"`, "Last-Modified", date}
	for _, c := range []struct {
		asked  Validator
		header []string
		want   Validator
	}{
		{"", both, `"x"`}, {"", weak, dated}, {"", []string{"ETag", "x"}, ""}, {"", nil, ""}, {"", []string{"Last-Modified", "yesterday"}, ""},
		{`"y"`, both, `"x"`}, {`"y"`, weak, ""}, {dated, both, dated}, {dated, weak, dated}, {dated, []string{"ETag", `"x"`}, ""},
		{"", []string{"ETag", `"`}, ""}, {"", []string{"ETag", `"x"y"`}, ""}, {"", []string{"ETag", `""`}, `""`},
	} {
		require.Equal(t, c.want, AnswerOf(response(206, "", c.header...), c.asked).Validator, "%v", c)
	}
	h := http.Header{}
	dated.SetConditions(h)
	require.Equal(t, http.Header{"If-Unmodified-Since": {"Sat, 21 Nov 2026 08:00:01 GMT"}}, h, "for servers with finer times")
	h = http.Header{}
	Validator(`"x"`).SetConditions(h)
	require.Equal(t, http.Header{"If-Match": {`"x"`}}, h)
	h = http.Header{}
	Validator("").SetConditions(h)
	SetRange(h, 0, -1)
	require.Empty(t, h)
	SetRange(h, 5, 1)
	require.Equal(t, "bytes=5-5", h.Get("Range"))
	SetRange(h, 5, -1)
	require.Equal(t, "bytes=5-", h.Get("Range"))
}

func TestErrorCodesAreReadAndBodiesKept(t *testing.T) {
	const body = `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>less</Message></Error>`
	resp := response(503, body, "Content-Type", "application/xml")
	a := AnswerOf(resp, "")
	a.ReadCode(resp.Header)
	require.Equal(t, "SlowDown", a.Code)
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.Equal(t, body, string(text))
	require.NoError(t, a.Body.Close())

	for name, resp := range map[string]*http.Response{
		"no XML":         response(503, body, "Content-Type", "text/html"),
		"another XML":    response(503, "<Code>SlowDown</Code>", "Content-Type", "text/xml"),
		"no word":        response(503, "<Error><Code>\x1b[2J</Code></Error>", "Content-Type", "text/xml"),
		"a text":         response(503, "<Error><Code>a b</Code></Error>", "Content-Type", "text/xml"),
		"no error":       response(200, body, "Content-Type", "text/xml"),
		"cut short":      response(503, body[:40], "Content-Type", "text/xml"),
		"a strange word": response(403, "", "x-ms-error-code", "a\x1bb"),
	} {
		a := AnswerOf(resp, "")
		a.ReadCode(resp.Header)
		require.Empty(t, a.Code, name)
	}
	resp = response(403, "", "x-ms-error-code", "AuthenticationFailed")
	a = AnswerOf(resp, "")
	a.ReadCode(resp.Header)
	require.Equal(t, "AuthenticationFailed", a.Code)

	// A body that breaks off also breaks off for the next reader.
	resp = response(503, "", "Content-Type", "text/xml")
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("<Error>"), iotest.ErrReader(errors.New("reset"))))
	a = AnswerOf(resp, "")
	a.ReadCode(resp.Header)
	text, err = io.ReadAll(a.Body)
	require.ErrorContains(t, err, "reset")
	require.Equal(t, "<Error>", string(text))
}

func TestStatusAndRefusalErrors(t *testing.T) {
	require.ErrorIs(t, fmt.Errorf("x: %w", &StatusError{Status: 404}), fs.ErrNotExist)
	require.ErrorIs(t, &StatusError{Status: 410}, fs.ErrNotExist)
	require.NotErrorIs(t, &StatusError{Status: 403}, fs.ErrNotExist)
	require.EqualError(t, &StatusError{Status: 503, Code: "SlowDown"}, "the answer is 503 Service Unavailable (SlowDown)")
	require.EqualError(t, &StatusError{Status: 799}, "the answer is 799")
	var refusal *Refusal
	require.ErrorAs(t, Refuse("no: %w", fs.ErrInvalid), &refusal)
	require.ErrorIs(t, Refuse("no: %w", fs.ErrInvalid), fs.ErrInvalid)
}

func TestResponseErrorsContainNoSecrets(t *testing.T) {
	for text, want := range map[string]string{
		`Get "https://host/x?X-Amz-Signature=hunter2&a=b": EOF`: `Get "https://host/x": EOF`,
		`proxy "http://u:hunter2@proxy:3128": refused`:          `proxy "http://proxy:3128": refused`,
		`dial tcp 127.0.0.1:80: connect: connection refused`:    `dial tcp 127.0.0.1:80: connect: connection refused`,
		`malformed line: X-Amz-Security-Token: hunter2`:         `malformed line: X-Amz-Security-Token=…`,
		`Authorization: Bearer hunter2 failed`:                  `Authorization=… failed`,
		`aws_secret_access_key = hunter2`:                       `aws_secret_access_key=…`,
	} {
		err := Clean(fmt.Errorf("%s (%w)", text, fs.ErrClosed))
		require.Equal(t, want+" (file already closed)", err.Error())
		require.ErrorIs(t, err, fs.ErrClosed)
	}
	require.NoError(t, Clean(nil))
	of := fmt.Errorf("page 3: %w: look there", &url.Error{Op: "Get", URL: "https://u:p@host/x?sig=hunter2", Err: io.ErrUnexpectedEOF})
	require.EqualError(t, Clean(of), "page 3: unexpected EOF: look there")
	require.ErrorIs(t, Clean(of), io.ErrUnexpectedEOF)
}
