package remote_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestContentRangesAreParsedStrictly(t *testing.T) {
	for header, want := range map[string][3]int64{
		"bytes 0-9/100": {0, 10, 100}, "bytes 90-99/100": {90, 100, 100}, "bytes 8-8/9": {8, 9, 9}, "Bytes 0-0/1": {0, 1, 1},
		"bytes 0-9/*": {0, 10, -1}, "bytes */100": {-1, -1, 100}, "bytes */0": {-1, -1, 0},
		"bytes 0-999999999999999997/999999999999999999": {0, 999999999999999998, 999999999999999999},
	} {
		begin, end, total, ok := remote.ParseContentRange(header)
		require.True(t, ok, header)
		require.Equal(t, want, [3]int64{begin, end, total}, header)
	}
	for _, header := range []string{
		"", "bytes", "bytes ", "0-4/9", "bytes=0-4/9", "bytes  0-4/9", " bytes 0-4/9", "lines 0-4/9", "items 0-9/100", "bytes 0-9", "bytes 0-4", "bytes 0-9/9", "bytes 0-100/100",
		"bytes 5-4/9", "bytes 0-4/9 ", "bytes 0-4/", "bytes -4/9", "bytes 5-/100", "bytes +0-4/9", "bytes 0- 4/9", "bytes 0-4/9, 5-6/9", "bytes 0-9/100, bytes 5-6/100",
		"bytes */*", "bytes 0-4-5/9", "bytes 0-4/9999999999999999999", "bytes 0x0-4/9", "bytes 0-9/1e3", "bytes 0-4/9/9", "bytes 0-4/-9",
		"bytes 0-9223372036854775807/*", "bytes 0-99999999999999999999/99999999999",
	} {
		begin, end, total, ok := remote.ParseContentRange(header)
		require.False(t, ok, "%q", header)
		require.Equal(t, [3]int64{-1, -1, -1}, [3]int64{begin, end, total}, "%q", header)
	}
}

// A range that is parsed from a header is within its total, and equals what a header written from
// it means.
func FuzzContentRange(f *testing.F) {
	for _, header := range []string{"bytes 0-9/100", "bytes 0-9/*", "bytes */100", "bytes */*", "bytes 00-09/0100", "bytes 1-0/2"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		begin, end, total, ok := remote.ParseContentRange(header)
		require.GreaterOrEqual(t, total, int64(-1))
		require.Equal(t, ok, begin >= 0 || total >= 0)
		if begin == -1 {
			require.EqualValues(t, -1, end)
			return
		}
		require.Greater(t, end, begin)
		require.GreaterOrEqual(t, begin, int64(0))
		length := "*"
		if total >= 0 {
			require.LessOrEqual(t, end, total)
			length = fmt.Sprint(total)
		}
		b, e, l, _ := remote.ParseContentRange(fmt.Sprintf("bytes %d-%d/%s", begin, end-1, length))
		require.Equal(t, [3]int64{begin, end, total}, [3]int64{b, e, l})
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, header, value string
		want                time.Duration
	}{
		{"seconds", "Retry-After", "7", 7 * time.Second},
		{"a date to come", "Retry-After", "Sat, 21 Nov 2026 08:00:30 GMT", 30 * time.Second},
		{"a date that has passed", "Retry-After", "Sat, 21 Nov 2026 07:00:00 GMT", 0},
		{"a day is not waited for", "Retry-After", "86400", 5 * time.Minute},
		{"more than a number holds", "Retry-After", "99999999999999999999", 0},
		{"nonsense", "Retry-After", "soon", 0},
		{"less than nothing", "Retry-After", "-5", 0},
		{"a limit that is used up", "RateLimit", `"api";r=0;t=55`, 55 * time.Second},
		{"a limit of an older draft", "RateLimit", "limit=100, remaining=0, reset=12", 12 * time.Second},
		{"a limit with something left", "RateLimit", `"api";r=3;t=55`, 0},
		{"limits of which two are used up", "RateLimit", `"a";r=0;t=20, "b";r=9;t=55,"c"; r=0; t=30`, 30 * time.Second},
		{"a limit that does not say what is left", "RateLimit", `"api";t=55`, 0},
		{"a limit of no numbers", "RateLimit", "t=x;r=0", 0},
		{"at once", "Retry-After", " 0 ", 0},
		{"nothing", "Date", "Sat, 21 Nov 2026 08:00:30 GMT", 0},
	} {
		require.Equal(t, c.want, remote.RetryAfter(header(c.header, c.value), now), c.name)
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("Sat, 21 Nov 2026 08:00:30 GMT", "")
	f.Add("", `"api";r=0;t=55`)
	f.Fuzz(func(t *testing.T, after, limit string) {
		h := http.Header{"Retry-After": {after}, "Ratelimit": {limit}}
		got := remote.RetryAfter(h, time.Unix(1795248000, 0))
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, 5*time.Minute)
	})
}

func header(key, value string) http.Header {
	h := http.Header{}
	h.Set(key, value)
	return h
}
