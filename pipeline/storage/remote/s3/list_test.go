package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestListingContainsAllKeys(t *testing.T) {
	keys := shelf{"a/x.tar", "t/", "t/.hidden", "t/.dir/x.tar", "t/a//b.tar", "t/a/../b.tar", "t/a/./b.tar", "t/a/b.tar", "t/a b+c%20&<ü>\n.tar", "t/sub/", "t/x.tar", "tx.tar"}
	slices.Sort(keys)
	s := serve(t, keys.ServeHTTP)
	src := s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"})
	require.Equal(t, []string{"", ".dir/x.tar", ".hidden", "a b+c%20&<ü>\n.tar", "a/../b.tar", "a/./b.tar", "a//b.tar", "a/b.tar", "sub/", "x.tar"}, listed(t, src),
		"the engine says which of them can be files")
	require.Equal(t, []string{"GET bucket.s3.eu-west-1.amazonaws.com/"}, s.requests())
	require.Equal(t, "RestoreStatus", s.last().Header.Get("X-Amz-Optional-Object-Attributes"))

	require.NoError(t, remote.Walk(t.Context(), src, func(l remote.Listed) error {
		if l.Path == "x.tar" {
			require.Equal(t, remote.Listed{Path: "x.tar", SizeBytes: 7, Validator: `"7"`, Modified: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)}, l)
		}
		return nil
	}))
	require.Len(t, listed(t, s.open(t, "s3://bucket", Options{Region: "eu-west-1"})), len(keys))
}

// many returns keys in folders, some in the flat part and some spanning its end.
func many(folders, files int) (keys shelf) {
	for d := range folders {
		for f := range files {
			keys = append(keys, fmt.Sprintf("t/%02d/%05d.tar", d, f))
		}
	}
	for f := range 3 * files / 2 {
		keys = append(keys, fmt.Sprintf("t/05-%05d.tar", f), fmt.Sprintf("t/zz-%05d.tar", f))
	}
	slices.Sort(keys)
	return keys
}

func TestLongListingContinuesByFolders(t *testing.T) {
	keys := many(12, 260)
	s := serve(t, keys.ServeHTTP)
	src := s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"})
	var want []string
	for _, key := range keys {
		want = append(want, strings.TrimPrefix(key, "t/"))
	}
	require.Equal(t, want, listed(t, src))
	n := len(s.requests())
	require.Less(t, n, len(keys)/shelfPage+30, "no page is asked for in vain")

	// The same with a service that ignores where to begin, and with one that has an order of its
	// own, which is listed one page after another.
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Del("start-after")
		r.URL.RawQuery = q.Encode()
		keys.ServeHTTP(w, r)
	}
	require.Equal(t, want, listed(t, src))
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		require.Empty(t, q.Get("delimiter"))
		first, _ := fmt.Sscanf(q.Get("continuation-token"), "%d", new(int))
		from := 0
		if first == 1 {
			_, _ = fmt.Sscanf(q.Get("continuation-token"), "%d", &from)
		}
		backwards := slices.Clone(keys[from:min(from+shelfPage, len(keys))])
		slices.Reverse(backwards)
		_, _ = fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%v</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", from+shelfPage < len(keys), from+shelfPage)
		for _, key := range backwards {
			_, _ = fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>1</Size></Contents>", key)
		}
		_, _ = io.WriteString(w, "</ListBucketResult>")
	}
	require.Equal(t, want, listed(t, src))
}

func TestListingStopsAtFirstError(t *testing.T) {
	keys := many(12, 260)
	for _, at := range []int{1, 100, 2001, 3000} {
		s := serve(t, keys.ServeHTTP)
		src := s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"})
		halt, visits := errors.New("enough"), 0
		require.ErrorIs(t, remote.Walk(t.Context(), src, func(remote.Listed) error {
			if visits++; visits >= at {
				return halt
			}
			return nil
		}), halt)
		require.Equal(t, at, visits)

		ended, cancel := context.WithCancel(t.Context())
		visits = 0
		require.ErrorIs(t, remote.Walk(ended, src, func(remote.Listed) error {
			if visits++; visits == at {
				cancel()
			}
			return nil
		}), context.Canceled)
		require.Equal(t, at, visits)
		cancel()
	}
	// A page that fails, wherever it is, fails the listing.
	for _, bad := range []int64{1, 2, 20, 21, 25, 38} {
		var n atomic.Int64
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == bad {
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(503)
				_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code></Error>")
				return
			}
			keys.ServeHTTP(w, r)
		})
		err := remote.Walk(t.Context(), s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"}), func(remote.Listed) error { return nil })
		var status *remote.StatusError
		require.ErrorAs(t, err, &status, "page %d", bad)
		require.Equal(t, remote.StatusError{Status: 503, Code: "SlowDown"}, *status)
	}
}

// This does not depend on the service's tokens, or on how many pages are between two equal ones.
func TestEndlessListingIsAnError(t *testing.T) {
	key := func(n int) string { return fmt.Sprintf("<Contents><Key>t/%06d</Key><Size>1</Size></Contents>", n) }
	for name, content := range map[string]func(page int) string{
		"one page":        func(int) string { return key(1) },
		"two in turn":     func(n int) string { return key(n % 2) },
		"after others":    func(n int) string { return key(max(n%7, n%100-50)) },
		"many in turn":    func(n int) string { return key(n % 300) },
		"a folder":        func(int) string { return "<CommonPrefixes><Prefix>t/</Prefix></CommonPrefixes>" },
		"the same folder": func(int) string { return "<CommonPrefixes><Prefix>t/a/</Prefix></CommonPrefixes>" },
		"nothing":         func(int) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			var pages atomic.Int64
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				n := int(pages.Add(1))
				_, _ = fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>%s</ListBucketResult>", n, content(n))
			})
			err := remote.Walk(t.Context(), s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"}), func(remote.Listed) error { return nil })
			var refusal *remote.Refusal
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, "the listing does not end")
			require.LessOrEqual(t, pages.Load(), int64(maxEmpty+flatPages+2))
		})
	}
}

func TestWebPageIsNotAListing(t *testing.T) {
	for _, kind := range []string{"text/html; charset=utf-8", "application/xml"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>Sign in</body></html>")
		})
		err := remote.Walk(t.Context(), s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"}), func(remote.Listed) error { return nil })
		var refusal *remote.Refusal
		require.ErrorAs(t, err, &refusal, kind)
		require.ErrorContains(t, err, "look at --endpoint")
	}
}

func TestUntrustworthyPagesAreErrors(t *testing.T) {
	for word, text := range map[string]string{
		"how it goes on":    "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
		"again and again":   "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>1</NextContinuationToken></ListBucketResult>",
		"how large":         "<ListBucketResult><Contents><Key>t/x</Key></Contents></ListBucketResult>",
		`how large "t/y"`:   "<ListBucketResult><Contents><Key>t/y</Key><Size>-1</Size></Contents></ListBucketResult>",
		"does not begin":    "<ListBucketResult><Contents><Key>x</Key><Size>1</Size></Contents></ListBucketResult>",
		"not url-encoded":   "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>t/%zz</Key><Size>1</Size></Contents></ListBucketResult>",
		"can't be read":     "<ListBucketResult><Contents>",
		"can't be read: ex": "<Other/>",
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
		err := remote.Walk(t.Context(), s.open(t, "s3://bucket/t/", Options{Region: "eu-west-1"}), func(remote.Listed) error { return nil })
		require.ErrorContains(t, err, word)
	}
}

func TestArchivedObjectsAreDetected(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			class, restore, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ":")
			w.Header().Set("X-Amz-Storage-Class", class)
			w.Header().Set("X-Amz-Restore", restore)
			w.Header().Set("ETag", "1")
			return
		}
		_, _ = io.WriteString(w, `<ListBucketResult>
			<Contents><Key>a</Key><Size>1</Size><StorageClass>GLACIER</StorageClass></Contents>
			<Contents><Key>b</Key><Size>1</Size><StorageClass>DEEP_ARCHIVE</StorageClass></Contents>
			<Contents><Key>c</Key><Size>1</Size><StorageClass>GLACIER_IR</StorageClass></Contents>
			<Contents><Key>d</Key><Size>1</Size><StorageClass>GLACIER</StorageClass><RestoreStatus><IsRestoreInProgress>true</IsRestoreInProgress></RestoreStatus></Contents>
			<Contents><Key>e</Key><Size>1</Size><StorageClass>GLACIER</StorageClass><RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress><RestoreExpiryDate>2026-12-24T00:00:00.000Z</RestoreExpiryDate></RestoreStatus></Contents>
			<Contents><Key>f</Key><Size>1</Size><ETag>W/&quot;1&quot;</ETag><LastModified>2026-11-21T08:00:00.123Z</LastModified></Contents>
		</ListBucketResult>`)
	})
	src := s.open(t, "s3://bucket", Options{Region: "eu-west-1"})
	archived := map[string]bool{}
	require.NoError(t, remote.Walk(t.Context(), src, func(l remote.Listed) error {
		archived[l.Path] = l.Archived
		if l.Path == "f" {
			require.EqualValues(t, "modified:Sat, 21 Nov 2026 08:00:00 GMT", l.Validator)
		}
		return nil
	}))
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": false, "d": true, "e": false, "f": false}, archived)

	for path, want := range map[string]bool{
		"GLACIER": true, "GLACIER_IR": false, `GLACIER:ongoing-request="true"`: true, `GLACIER:ongoing-request="false", expiry-date="x"`: false, "STANDARD": false,
	} {
		l, err := src.Head(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, want, l.Archived, path)
		require.EqualValues(t, `"1"`, l.Validator)
	}
}
