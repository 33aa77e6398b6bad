package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Whatever an answer's head contains, it is accepted only if a body of the announced length
// contains the requested bytes of the listed version.
func TestAcceptedResponsesAreCorrect(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 50).Draw(t, "size")
		begin := rapid.Int64Range(0, size-1).Draw(t, "begin")
		end := rapid.Int64Range(begin+1, size).Draw(t, "end")
		q := question{begin: begin, end: end, size: size, validator: rapid.SampledFrom([]Validator{"", `"a"`, "modified:x"}).Draw(t, "listed")}
		q.plain = begin == 0 && end == size
		q.whole = rapid.Bool().Draw(t, "whole")
		near := func(n int64) *rapid.Generator[int64] {
			return rapid.Custom(func(t *rapid.T) int64 {
				return rapid.SampledFrom([]int64{n, n, n, n - 1, n + 1, -1, 0}).Draw(t, "near")
			})
		}
		a := Answer{
			Status: rapid.SampledFrom([]int{206, 206, 200, 200, 204, 404, 503}).Draw(t, "status"),
			Begin:  near(begin).Draw(t, "begins"), End: near(end).Draw(t, "ends"), Total: near(size).Draw(t, "total"),
			Validator: rapid.SampledFrom([]Validator{q.validator, q.validator, "", `"b"`}).Draw(t, "validator"),
			Encoding:  rapid.SampledFrom([]string{"", "", "identity", "gzip"}).Draw(t, "encoding"),
			Page:      rapid.SampledFrom([]string{"", "", "", "a web page"}).Draw(t, "page"),
			Several:   rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "several"),
		}
		body := size // for a 200
		if a.Status == 206 {
			body = a.End - a.Begin
		}
		a.LengthBytes = near(body).Draw(t, "length")
		f := check(a, q)
		if f.kind != kindGood {
			require.Error(t, f.err)
			return
		}
		taken++
		require.True(t, a.Encoding == "" || a.Encoding == "identity" || a.LengthBytes >= 0, "what is encoded on the way does not say how long it is")
		require.Empty(t, a.Page)
		require.False(t, a.Several)
		require.True(t, q.validator == "" || a.Validator == q.validator)
		first, last := a.Begin, a.End // the part of the object that is in the body
		if a.Status == 200 {
			first, last = 0, size
			require.True(t, q.plain || q.whole)
		} else {
			require.Equal(t, 206, a.Status)
			require.Equal(t, size, a.Total)
		}
		require.Equal(t, begin, first+f.skip)
		require.Equal(t, end, last-f.rest)
		if a.LengthBytes >= 0 {
			require.Equal(t, last-first, a.LengthBytes)
		}
	})
	t.Logf("%d answers were taken", taken)
}

// Right answers are accepted, so the test above is not vacuous.
func TestCorrectResponsesAreAccepted(t *testing.T) {
	for which, a := range map[string]Answer{
		"the range":                {Status: 206, Begin: 3, End: 7, Total: 9, LengthBytes: 4, Validator: `"a"`},
		"without a length":         {Status: 206, Begin: 3, End: 7, Total: 9, LengthBytes: -1, Validator: `"a"`},
		"of identity":              {Status: 206, Begin: 3, End: 7, Total: 9, LengthBytes: 4, Validator: `"a"`, Encoding: "identity"},
		"stored with an encoding":  {Status: 206, Begin: 3, End: 7, Total: 9, LengthBytes: 4, Validator: `"a"`, Encoding: "gzip"},
		"the object for its range": {Status: 200, LengthBytes: 9, Validator: `"a"`},
	} {
		q := question{begin: 3, end: 7, size: 9, validator: `"a"`, whole: true}
		require.Equal(t, kindGood, check(a, q).kind, which)
	}
}

// A body that is longer or shorter than announced is never good, and a good one has exactly the
// requested bytes.
func TestAcceptedBodiesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		skip, n, rest := rapid.IntRange(0, 9).Draw(t, "skip"), rapid.IntRange(1, 9).Draw(t, "n"), rapid.IntRange(0, 9).Draw(t, "rest")
		length := skip + n + rest + rapid.IntRange(-3, 3).Draw(t, "off by")
		body := make([]byte, max(length, 0))
		for i := range body {
			body[i] = byte(i + 1)
		}
		p := make([]byte, n)
		_, f := receive(bytes.NewReader(body), p, int64(skip), int64(rest))
		require.Equal(t, length == skip+n+rest, f.kind == kindGood)
		if f.kind == kindGood {
			require.Equal(t, body[skip:skip+n], p)
		}
	})
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	for n, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		require.InDelta(t, float64(want*time.Millisecond), float64(backoff(n, firstWait, 0.999999)), 1e5)
		require.Zero(t, backoff(n, firstWait, 0))
	}
	require.InDelta(t, float64(500*time.Millisecond), float64(backoff(0, firstThrottledWait, 0.999999)), 1e5)
	require.InDelta(t, float64(longestWait), float64(backoff(1<<30, firstThrottledWait, 0.999999)), 1e5)
}

// Any sequence of findings ends within the limit, or never if there is no limit and all of them may
// pass; waits are bounded.
func TestWaitsEndBeforeLimit(t *testing.T) {
	busy := finding{kind: kindThrottled, err: errors.New("busy"), retryAfter: 3 * time.Second}
	for waited, fails := range map[time.Duration]bool{0: false, 7*time.Second - 1: false, 7 * time.Second: true, 20 * time.Second: true} {
		var h history
		s := h.next(busy, waited, 10*time.Second, 0)
		require.Equal(t, fails, s.err != nil, "%v", waited)
	}
}

func TestRetriesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "limit"))
		var h history
		waited := time.Duration(0)
		counts := map[kind]int{}
		for range 5000 {
			f := finding{
				kind: kind(rapid.IntRange(int(kindAgain), int(kindFinal)).Draw(t, "kind")), err: errors.New("why"),
				retryAfter: time.Duration(rapid.Int64Range(0, int64(maxRetryAfter)).Draw(t, "after")),
			}
			counts[f.kind]++
			s := h.next(f, waited, limit, rapid.Float64Range(0, 0.9999).Draw(t, "u"))
			if s.err != nil {
				require.True(t, f.kind == kindFinal || limit > 0 && waited+maxRetryAfter >= limit || counts[kindRefresh] > 2 || counts[kindElsewhere] > 1 || counts[kindWrong] > 2 || counts[kindNoRanges] > 1)
				require.ErrorIs(t, s.err, f.err)
				return
			}
			require.NotEqual(t, kindFinal, f.kind)
			require.Equal(t, f.kind == kindRefresh || f.kind == kindElsewhere, s.refresh)
			require.LessOrEqual(t, s.wait, max(longestWait, f.retryAfter))
			require.GreaterOrEqual(t, s.wait, time.Duration(0))
			waited += s.wait + time.Second
		}
		require.Fail(t, "it does not end")
	})
}

// Nothing secret in a URL is printed, wherever in a text the URL is.
func TestErrorsContainNoSecrets(t *testing.T) {
	for _, text := range []string{
		"https://someone:secret@host/a?secret=1#secret: it broke",
		"https://someone@secret@host/a?b",
		`parse "https://host/a.tar?X-Amz-Signature=secret": bad`,
		"<https://host/a?secret> and (http://host/b?c=secret)",
		"to /resolve/a?token=secret\nthen",
	} {
		got := Clean(&url.Error{Op: "Get", URL: "https://secret:secret@host/?secret", Err: errors.New(text)}).Error()
		require.NotContains(t, got, "secret")
	}
	err := Clean(fmt.Errorf("outer https://secret@x/: %w", &url.Error{URL: "https://host/?secret", Err: context.Canceled}))
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "secret")
	require.Equal(t, "dial tcp 10.0.0.1:443: connection refused", Clean(errors.New("dial tcp 10.0.0.1:443: connection refused")).Error())
	require.Equal(t, "GET https://host/a: refused", CleanText("GET https://host/a?b: refused"))
	for _, code := range []string{"AccessDenied", "x-y_z.1"} {
		require.Equal(t, code, codeWord(code))
	}
	for _, code := range []string{"a b", "a?b", "https://x", string(make([]byte, 100))} {
		require.Empty(t, codeWord(code))
	}
}

func TestUnlistedStatusesAreFinal(t *testing.T) {
	for status := 100; status < 600; status++ {
		f := ofStatus(status, "", 0)
		require.Error(t, f.err)
		require.NotEqual(t, kindGood, f.kind)
		switch status {
		case 401, 301, 302, 303, 307, 308, 408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524:
			require.NotEqual(t, kindFinal, f.kind, "%d", status)
		default:
			require.Equal(t, kindFinal, f.kind, "%d %s", status, http.StatusText(status))
		}
	}
}

// The version of an object is the hash of its validator, and its date in whole seconds.
func TestVersions(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 123456789, time.UTC)
	v := version(Listed{Validator: `"abc"`, Modified: at})
	sum := sha256.Sum256([]byte(`"abc"`))
	require.Equal(t, storage.Version{ModTimeNanos: at.Unix() * 1e9, Inode: binary.BigEndian.Uint64(sum[:8])}, v)
	require.Equal(t, storage.Version{}, version(Listed{}))
}

// Listed objects are found again, and no others.
func TestListedValidators(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l listed
		model := map[string]storage.Object{}
		validators := map[string]Validator{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			path := rapid.SampledFrom([]string{"a", "b", "a/b", ""}).Draw(t, "path")
			v := Validator(rapid.OneOf(rapid.StringMatching(`"[0-9a-f]{32}"`), rapid.StringMatching(`"[0-9A-F]{32}"`), rapid.StringN(0, 40, -1)).Draw(t, "validator"))
			o := storage.Object{Path: path, SizeBytes: rapid.Int64Range(0, 3).Draw(t, "size"), Version: storage.Version{Inode: fingerprint(v)}}
			l.put(o, v)
			model[path], validators[path] = o, v
			if rapid.Bool().Draw(t, "known to be without ranges") {
				l.setWhole(o)
			}
			for path, o := range model {
				got, _, ok := l.get(o)
				require.True(t, ok)
				require.Equal(t, validators[path], got)
				o.SizeBytes++
				_, _, ok = l.get(o)
				require.False(t, ok)
			}
		}
	})
}

// A million S3 objects take about 50 MB.
func TestListedValidatorsAreSmall(t *testing.T) {
	var l listed
	for i := range 1000 {
		v := Validator(fmt.Sprintf(`"%032x"`, i))
		l.put(storage.Object{Path: fmt.Sprint(i), Version: storage.Version{Inode: fingerprint(v)}}, v)
	}
	require.Equal(t, 1000*18, len(l.packed))
	for range 1000 { // an object that keeps changing takes no more
		v := Validator(fmt.Sprintf(`"%032x"`, time.Now().UnixNano()))
		l.put(storage.Object{Path: "0", Version: storage.Version{Inode: fingerprint(v)}}, v)
	}
	require.Equal(t, 1000*18, len(l.packed))
}

func TestChangesAndUnreliableServersAreRecognized(t *testing.T) {
	o := storage.Object{Path: "x.tar", SizeBytes: 10}
	seen := func(size int64, versions ...Validator) (all []Listed) {
		for _, v := range versions {
			all = append(all, Listed{Path: o.Path, SizeBytes: size, Validator: v})
		}
		return all
	}
	const a, b, c = Validator(`"a"`), Validator(`"b"`), Validator(`"c"`)
	for name, x := range map[string]struct {
		listed Validator
		short  bool
		seen   []Listed
		words  string // "": it has changed
	}{
		"another version each time":   {a, false, seen(10, b, b, b), ""},
		"another size":                {a, false, seen(11, a, b, c), ""},
		"drawn anew":                  {a, false, seen(10, b, c, c), "another at each look"},
		"two servers in turn":         {a, false, seen(10, a, b, a), "another at each look"},
		"GET and HEAD disagree":       {a, false, seen(10, a, a, a), "another in others"},
		"it is shorter":               {a, true, seen(5, b, b, b), ""},
		"no ranges":                   {a, true, seen(10, a, a, a), "416"},
		"no ranges, no versions":      {"", true, seen(10, "", "", ""), "416"},
		"no version, then one":        {"", true, seen(10, a, a, a), ""},
		"416 of another server's":     {a, true, seen(10, a, b, a), "another at each look"},
		"it was replaced in our time": {a, true, seen(10, b, b, b), ""},
	} {
		err := unreliable(o, x.listed, finding{short: x.short}, x.seen)
		if x.words == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, x.words, name)
	}
}
