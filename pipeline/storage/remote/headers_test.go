package remote_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, header, value string
		want                time.Duration
	}{
		{"seconds", "Retry-After", "7", 7 * time.Second},
		{"a date to come", "Retry-After", "Sat, 21 Nov 2026 08:00:30 GMT", 30 * time.Second},
		{"a date that has passed", "Retry-After", "Sat, 21 Nov 2026 07:00:00 GMT", 0},
		{"a day is not waited for", "Retry-After", "86400", time.Hour},
		{"more than a number holds", "Retry-After", "99999999999999999999", 0},
		{"nonsense", "Retry-After", "soon", 0},
		{"less than nothing", "Retry-After", "-5", 0},
		{"a limit that is used up", "RateLimit", `"api";r=0;t=55`, 55 * time.Second},
		{"a limit with something left", "RateLimit", `"api";r=3;t=55`, 0},
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
		require.LessOrEqual(t, got, time.Hour)
	})
}

func header(key, value string) http.Header {
	h := http.Header{}
	h.Set(key, value)
	return h
}
