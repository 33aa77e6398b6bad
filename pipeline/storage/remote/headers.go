package remote

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ParseContentRange parses a Content-Range header: "bytes 0-9/100" is 0, 10, 100. end is exclusive.
// Missing parts are -1: "bytes 0-9/*" has no total, "bytes */100" no range. It is strict: ok is
// false, and all three are -1, for anything that RFC 9110 does not allow, and for ranges that are
// empty, extend beyond the total, or overflow.
func ParseContentRange(header string) (begin, end, total int64, ok bool) {
	unit, rest, spaced := strings.Cut(header, " ")
	span, length, found := strings.Cut(rest, "/")
	if !spaced || !found || !strings.EqualFold(unit, "bytes") {
		return -1, -1, -1, false
	}
	if total = number(length); total < 0 && length != "*" {
		return -1, -1, -1, false
	}
	if span == "*" {
		return -1, -1, total, total >= 0
	}
	first, last, _ := strings.Cut(span, "-")
	begin, end = number(first), number(last)
	if begin < 0 || end < begin || total >= 0 && end >= total {
		return -1, -1, -1, false
	}
	return begin, end + 1, total, true
}

// number parses decimal digits and nothing else; it returns -1 for anything else. It accepts at
// most 18 digits, more than any object's size has.
func number(digits string) int64 {
	if digits == "" || len(digits) > 18 || strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) {
		return -1
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// maxRetryAfter is the longest that the engine waits because a service asks for it. Services
// announce hourly limits, but let requests through earlier.
const maxRetryAfter = 5 * time.Minute

// RetryAfter returns how long a service asks clients to wait, by its headers: Retry-After (seconds,
// or a date), or else the t of RateLimit (`"api";r=0;t=55`, or `limit=100, remaining=0, reset=55`)
// if nothing remains. It returns 0 if there is no such header, or the time has passed, and at most
// 5 minutes.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if value := strings.TrimSpace(h.Get("Retry-After")); value != "" {
		if n := number(value); n >= 0 {
			return seconds(n)
		}
		if at, err := http.ParseTime(value); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter)
		}
		return 0
	}
	return rateLimit(h.Get("RateLimit"))
}

// rateLimit returns the longest wait of limits that are used up. Limits are a list, each with its
// parameters after semicolons. In an older draft there is one limit, and the list is its
// parameters.
func rateLimit(value string) (wait time.Duration) {
	limits := []string{value}
	if strings.Contains(value, ";") {
		limits = strings.Split(value, ",")
	}
	for _, limit := range limits {
		left, reset := int64(-1), int64(-1)
		for _, item := range strings.FieldsFunc(limit, func(r rune) bool { return r == ';' || r == ',' }) {
			switch key, v, _ := strings.Cut(strings.TrimSpace(item), "="); key {
			case "r", "remaining":
				left = number(v)
			case "t", "reset":
				reset = number(v)
			}
		}
		if left == 0 && reset > 0 {
			wait = max(wait, seconds(reset))
		}
	}
	return wait
}

func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxRetryAfter/time.Second))) * time.Second
}
