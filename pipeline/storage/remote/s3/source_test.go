package s3

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

func TestRequestsAreSignedAndPinTheirVersion(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(404)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Range", "bytes 5-8/100")
		w.Header().Set("Content-Encoding", "aws-chunked")
		w.WriteHeader(206)
		_, _ = io.WriteString(w, "abcd")
	})
	t.Setenv("AWS_SESSION_TOKEN", "hunter3")
	src := s.open(t, "s3://bucket/a b", Options{Region: "eu-west-1", RequesterPays: true})
	// The target may be an object, so that is requested first.
	require.Equal(t, []string{"HEAD bucket.s3.eu-west-1.amazonaws.com/a%20b"}, s.requests())
	a, err := src.Open(t.Context(), "x+y%.tar", `"v1"`, 5, 4)
	require.NoError(t, err)
	require.Equal(t, "abcd", body(t, a))
	a.Body = nil
	require.Equal(t, remote.Answer{Status: 206, Begin: 5, End: 9, Total: 100, LengthBytes: 4, Validator: `"v1"`}, a)
	r := s.last()
	require.Equal(t, "GET bucket.s3.eu-west-1.amazonaws.com/a%20b/x%2By%25.tar", r.Method+" "+r.Host+r.URL.EscapedPath())
	require.Equal(t, "bytes=5-8", r.Header.Get("Range"))
	require.Equal(t, `"v1"`, r.Header.Get("If-Match"))
	require.Equal(t, "requester", r.Header.Get("X-Amz-Request-Payer"))
	require.Equal(t, "hunter3", r.Header.Get("X-Amz-Security-Token"))
	require.Contains(t, r.Header.Get("Authorization"), "/eu-west-1/s3/aws4_request, SignedHeaders=host;if-match;range;")
	require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))

	src = s.open(t, "s3://bucket/a/", Options{Region: "eu-west-1", Anonymous: true})
	_, err = src.Open(t.Context(), "x", "", 0, -1)
	require.NoError(t, err)
	require.Empty(t, s.last().Header.Get("Authorization"))
	require.Empty(t, s.last().Header.Get("Range"))
	_, err = src.Open(t.Context(), "\xff", "", 0, 1)
	require.ErrorContains(t, err, "UTF-8")
	_, err = src.Open(t.Context(), "x", "", 0, 0)
	require.Error(t, err)
}

func TestTargetIsObjectOrFolder(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a/x.tar":
			w.Header().Set("ETag", `"v1"`)
		case "/a/forbidden":
			w.WriteHeader(403)
		case "/a/broken":
			w.WriteHeader(500)
		case "/a/gzip":
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Encoding", "gzip")
		case "/a/page":
			w.Header().Set("Content-Type", "text/html")
		case "/a/unnamed":
		default:
			w.WriteHeader(404)
		}
	})
	o := Options{Region: "eu-west-1", Transport: amazon{transport(t), s.server.Listener.Addr().String()}}
	for name, want := range map[string][2]string{
		"s3://bucket/a/x.tar":     {"s3://bucket/a", "x.tar"},
		"s3://bucket/a/y":         {"s3://bucket/a/y", ""},
		"s3://bucket/a/forbidden": {"s3://bucket/a/forbidden", ""},
		"s3://bucket/a/gzip":      {"s3://bucket/a", "gzip"},
		"s3://bucket/a/x.tar/":    {"s3://bucket/a/x.tar", ""},
		"s3://bucket/a/*.tar":     {"s3://bucket/a", ""},
		"s3://bucket":             {"s3://bucket", ""},
	} {
		src, object, err := Open(t.Context(), bucket(t, name), o)
		require.NoError(t, err, name)
		require.Equal(t, want, [2]string{src.Name(), object}, name)
		require.NoError(t, src.Close())
	}
	for name, word := range map[string]string{"broken": "500", "page": "a web page (text/html) came", "unnamed": "neither ETag"} {
		_, _, err := Open(t.Context(), bucket(t, "s3://bucket/a/"+name), o)
		require.ErrorContains(t, err, "s3://bucket/a/"+name+": ")
		require.ErrorContains(t, err, word)
	}
}

// Unless the folder is empty.
func TestEmptyObjectMarksFolderOfItsName(t *testing.T) {
	for object, keys := range map[string]shelf{"": {"a/t", "a/t/", "a/t/x.tar"}, "t": {"a/t", "a/t/", "a/tx.tar"}} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.Header().Set("ETag", `"v1"`)
				w.Header().Set("Content-Length", "0")
				return
			}
			keys.ServeHTTP(w, r)
		})
		src, got, err := Open(t.Context(), bucket(t, "s3://bucket/a/t"), Options{Region: "eu-west-1", Transport: amazon{transport(t), s.server.Listener.Addr().String()}})
		require.NoError(t, err)
		require.Equal(t, object, got)
		require.NoError(t, src.Close())
	}
}

// Unless it is what was listed: objects may be stored with any type.
func TestWebPageIsNotAnObject(t *testing.T) {
	tag := ""
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("ETag", tag)
		_, _ = io.WriteString(w, "<html>")
	})
	src := s.open(t, "s3://bucket/", Options{Region: "eu-west-1"})
	for _, tag = range []string{"", `"v1"`, `"v2"`} {
		a, err := src.Open(t.Context(), "x.tar", `"v1"`, 0, -1)
		require.NoError(t, err)
		body(t, a)
		require.Equal(t, tag != `"v1"`, a.Page != "", tag)
	}
}

func TestBucketsAreFoundByRegionAndEndpoint(t *testing.T) {
	for _, c := range []struct {
		bucket  string
		options Options
		env     [2]string
		profile profile
		url     string
		name    string
	}{
		{"bucket", Options{}, [2]string{"AWS_REGION", "eu-west-1"}, profile{region: "x"}, "https://bucket.s3.eu-west-1.amazonaws.com/a%20b", "s3://bucket"},
		{"bucket", Options{Region: "us-west-2"}, [2]string{"AWS_REGION", "eu-west-1"}, profile{}, "https://bucket.s3.us-west-2.amazonaws.com/a%20b", "s3://bucket"},
		{"bucket", Options{}, [2]string{}, profile{region: "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn/a%20b", "s3://bucket"},
		{"with.dots", Options{Region: "us-west-2"}, [2]string{}, profile{}, "https://s3.us-west-2.amazonaws.com/with.dots/a%20b", "s3://with.dots"},
		{"bucket", Options{Endpoint: "http://127.0.0.1:7070/"}, [2]string{}, profile{}, "http://127.0.0.1:7070/bucket/a%20b", "s3+http://127.0.0.1:7070/bucket"},
		{"bucket", Options{}, [2]string{"AWS_ENDPOINT_URL_S3", "https://Minio.local"}, profile{endpoint: "http://x"}, "https://minio.local/bucket/a%20b", "s3+https://minio.local/bucket"},
		{"bucket", Options{}, [2]string{"AWS_ENDPOINT_URL", "https://minio.local"}, profile{}, "https://minio.local/bucket/a%20b", "s3+https://minio.local/bucket"},
		{"bucket", Options{}, [2]string{}, profile{endpoint: "http://x:1"}, "http://x:1/bucket/a%20b", "s3+http://x:1/bucket"},
		{"bucket", Options{Endpoint: "https://Host/storage/v1/s3/"}, [2]string{}, profile{}, "https://host/storage/v1/s3/bucket/a%20b", "s3+https://host/storage/v1/s3//bucket"},
		{"bucket", Options{Endpoint: "https://host/s3", Addressing: "virtual"}, [2]string{}, profile{}, "https://bucket.host/s3/a%20b", "s3+https://host/s3//bucket"},
		{"bucket", Options{Endpoint: "https://host:9000", Addressing: "auto"}, [2]string{}, profile{addressing: "virtual"}, "https://bucket.host:9000/a%20b", "s3+https://host:9000/bucket"},
		{"bucket", Options{Endpoint: "https://host", Addressing: "path"}, [2]string{}, profile{addressing: "virtual"}, "https://host/bucket/a%20b", "s3+https://host/bucket"},
		{"bucket", Options{Region: "eu-west-1", Addressing: "path"}, [2]string{}, profile{}, "https://s3.eu-west-1.amazonaws.com/bucket/a%20b", "s3://bucket"},
		{"with.dots", Options{Region: "eu-west-1", Addressing: "virtual"}, [2]string{}, profile{}, "https://with.dots.s3.eu-west-1.amazonaws.com/a%20b", "s3://with.dots"},
		{"bucket", Options{}, [2]string{"AWS_REGION", "eu-west-1\n"}, profile{}, "https://bucket.s3.eu-west-1.amazonaws.com/a%20b", "s3://bucket"},
		{"bucket", Options{}, [2]string{"AWS_ENDPOINT_URL", " https://minio.local\r\n"}, profile{}, "https://minio.local/bucket/a%20b", "s3+https://minio.local/bucket"},
	} {
		alone(t)
		if c.env[0] != "" {
			t.Setenv(c.env[0], c.env[1])
		}
		at, err := locate(target.Bucket{Name: c.bucket}, c.options, c.profile)
		require.NoError(t, err)
		require.Equal(t, c.url, at.url("a b").String())
		require.Equal(t, c.name, at.name(""))
		require.Equal(t, c.name+"/t/u", at.name("t/u/"))
	}
	alone(t)
	for word, o := range map[string]Options{
		"no URL":     {Endpoint: "hunter2:9000"},
		"user name":  {Endpoint: "https://u:hunter2@host"},
		"more than":  {Endpoint: "https://host/bucket?hunter2"},
		"signs":      {Endpoint: "https://host/a%20b"},
		"slashes":    {Endpoint: "https://host/a//b"},
		"address":    {Endpoint: "https://127.0.0.1:9000", Addressing: "virtual"},
		"auto, path": {Addressing: "host"},
		"region":     {Region: "evil.example/"},
	} {
		_, err := locate(target.Bucket{Name: "bucket"}, o, profile{})
		require.ErrorContains(t, err, word)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := locate(target.Bucket{Name: "b--use1-az4--x-s3"}, Options{}, profile{})
	require.ErrorContains(t, err, "S3 Express")
}

// Once, and without credentials.
func TestUnsetRegionIsQueried(t *testing.T) {
	status := 403
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == globalHost {
			require.Empty(t, r.Header.Get("Authorization"))
			if status != 404 {
				w.Header().Set(regionHeader, "ap-south-1")
			}
			w.WriteHeader(status)
			return
		}
		w.Header().Set("ETag", `"v1"`)
	})
	src := s.open(t, "s3://bucket/", Options{})
	for range 2 {
		_, err := src.Head(t.Context(), "x")
		require.NoError(t, err)
	}
	require.Equal(t, []string{"HEAD s3.amazonaws.com/bucket", "HEAD bucket.s3.ap-south-1.amazonaws.com/x", "HEAD bucket.s3.ap-south-1.amazonaws.com/x"}, s.requests())

	status = 404
	_, err := s.open(t, "s3://bucket/", Options{}).Head(t.Context(), "x")
	require.ErrorContains(t, err, "no such bucket")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Unless the user has set a region.
func TestReportedRegionIsUsed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Host, "eu-north-1") {
			w.Header().Set(regionHeader, "eu-north-1")
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(301)
			_, _ = io.WriteString(w, "<Error><Code>PermanentRedirect</Code></Error>")
			return
		}
		w.Header().Set("ETag", `"v1"`)
	})
	t.Setenv("AWS_REGION", "us-east-1")
	for _, demanded := range []string{"", "us-east-1"} {
		src := s.open(t, "s3://bucket/", Options{Region: demanded})
		a, err := src.Open(t.Context(), "x", "", 0, 1)
		require.NoError(t, err)
		require.Equal(t, 301, a.Status)
		require.Equal(t, "PermanentRedirect", a.Code)
		body(t, a)
		src.Refresh(t.Context(), "x")
		a, err = src.Open(t.Context(), "x", "", 0, 1)
		require.NoError(t, err)
		body(t, a)
		require.Equal(t, map[string]int{"": 200, "us-east-1": 301}[demanded], a.Status)
	}
}

// HEAD is answered without a body: an object that is a target is found anyway.
func TestRegionIsDiscoveredByHeadRequest(t *testing.T) {
	for _, status := range []int{301, 400} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Host, "eu-north-1") {
				w.Header().Set(regionHeader, "eu-north-1")
				w.WriteHeader(status)
				return
			}
			w.Header().Set("ETag", `"v1"`)
		})
		t.Setenv("AWS_REGION", "us-east-1")
		src, object, err := Open(t.Context(), bucket(t, "s3://bucket/a/x.tar"), Options{Transport: amazon{transport(t), s.server.Listener.Addr().String()}})
		require.NoError(t, err)
		require.Equal(t, "x.tar", object)
		require.NoError(t, src.Close())
	}
}

func TestResponsesCarryErrorCodes(t *testing.T) {
	for code, status := range map[string]int{"SlowDown": 503, "ExpiredToken": 400, "InvalidObjectState": 403, "RequestTimeTooSkewed": 403, "NoSuchKey": 404} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>%s</Code><Message>m</Message></Error>", code)
		})
		src := s.open(t, "s3://bucket/", Options{Region: "eu-west-1"})
		a, err := src.Open(t.Context(), "x", `"v1"`, 0, 1)
		require.NoError(t, err)
		require.Contains(t, body(t, a), code)
		require.Equal(t, []any{status, code, 2 * time.Second}, []any{a.Status, a.Code, a.RetryAfter})
		_, err = src.Head(t.Context(), "x")
		var said *remote.StatusError
		require.ErrorAs(t, err, &said)
		require.Equal(t, status, said.Status)
	}
}

func TestConnectionErrorsContainNoSecrets(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nX-Amz-Security-Token=hunter2\r\n\r\n")
		_ = conn.Close()
	})
	src := s.open(t, "s3://bucket/", Options{Region: "eu-west-1"})
	_, err := src.Open(t.Context(), "x", "", 0, 1)
	require.ErrorContains(t, err, "X-Amz-Security-Token=…")
	require.NotContains(t, err.Error(), "hunter2")
	require.NotContains(t, remote.Walk(t.Context(), src, nil).Error(), "hunter2")
}

// The error for a rejected request names the cause: the secret, the key ID, the token, or their
// permissions; and where that was set.
func TestRefusalNamesRelevantSetting(t *testing.T) {
	code := ""
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
	})
	refused := func(o Options) *remote.StatusError {
		_, err := s.open(t, "s3://bucket/", o).List(t.Context(), "", nil)
		var status *remote.StatusError
		require.True(t, errors.As(err, &status), "%v", err)
		return status
	}
	o := Options{Region: "eu-west-1"}
	for _, c := range []struct{ code, environment, file string }{
		{"SignatureDoesNotMatch", "look at AWS_SECRET_ACCESS_KEY", "look at aws_secret_access_key"},
		{"InvalidAccessKeyId", "look at AWS_ACCESS_KEY_ID", "look at aws_access_key_id"},
		{"InvalidToken", "look at AWS_SESSION_TOKEN", "look at aws_session_token"},
		{"ExpiredToken", "set new ones and start it again", "have expired: renew them"},
		{"AccessDenied", "permission to list the bucket and to read its objects; where whoever asks pays for requests, give --requester-pays", "permission"},
		{"Surprise", "", ""},
	} {
		code = c.code
		t.Setenv("AWS_ACCESS_KEY_ID", "test")
		got := refused(o)
		require.Contains(t, got.Advice, c.environment)
		require.Equal(t, remote.NoRenewal, got.Renewal)
		if c.environment != "" {
			require.Contains(t, got.Advice, "in the environment")
		}
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		configure(t, "", "[default]\naws_access_key_id = hunter2\naws_secret_access_key = hunter3\n")
		got = refused(o)
		require.Contains(t, got.Advice, c.file)
		require.NotContains(t, got.Advice, "hunter")
		require.Equal(t, remote.SomeRenewal, got.Renewal, "they have never been good")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
		o.Anonymous = true
		require.Contains(t, refused(o).Advice, "leave --anonymous out")
		o.Anonymous = false
	}
}

// The name that a source is printed with can be used as a target again, whatever else is set: it
// includes the service.
func TestSourceNameIsAValidTarget(t *testing.T) {
	alone(t)
	for _, below := range []string{"", "/s3", "/storage/v1/s3/"} {
		n := newNode(t, stores)
		src := openAt(t, "s3://bucket/train/", Options{Endpoint: n.URL + below})
		t.Setenv("AWS_ENDPOINT_URL", "http://elsewhere.invalid")
		again := openAt(t, src.Name()+"/", Options{Endpoint: "http://elsewhere.invalid"})
		require.Equal(t, src.Name(), again.Name())
		require.Equal(t, src.where().url("a b"), again.where().url("a b"))
		a, err := again.Open(t.Context(), "x.tar", "", 0, 4)
		require.NoError(t, err)
		require.Equal(t, "0123", body(t, a))
		object, name, err := Open(t.Context(), bucket(t, src.Name()+"/x.tar"), Options{Transport: transport(t)})
		require.NoError(t, err)
		require.Equal(t, []string{src.Name(), "x.tar"}, []string{object.Name(), name})
		require.NoError(t, object.Close())
	}
}

// Requests with the bucket in the host name are signed for that host.
func TestRequestsUseBucketInHostName(t *testing.T) {
	s := serve(t, stores)
	src := s.open(t, "s3://bucket/train/", Options{Endpoint: "https://store.local:9000", Addressing: "virtual"})
	a, err := src.Open(t.Context(), "x.tar", "", 0, 4)
	require.NoError(t, err)
	require.Equal(t, "0123", body(t, a))
	require.Equal(t, []string{"GET bucket.store.local:9000/train/x.tar"}, s.requests())
	require.Contains(t, s.last().Header.Get("Authorization"), "SignedHeaders=")
	require.Equal(t, "s3+https://store.local:9000/bucket/train", src.Name(), "it is the same dataset")
}

// A service that accepts buckets only in its host name rejects other requests, and not all services
// state the reason.
func TestRefusalSuggestsAddressingStyle(t *testing.T) {
	alone(t)
	for _, code := range []string{"SecondLevelDomainForbidden", "AccessDenied"} {
		n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(403)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		})
		for _, anonymous := range []bool{false, true} {
			src := openAt(t, "s3://bucket/", Options{Endpoint: n.URL, Anonymous: anonymous})
			s, err := remote.New(src, remote.DefaultConfig())
			require.NoError(t, err)
			_, err = s.Stat(t.Context(), "x.tar")
			require.Error(t, err)
			if code == "AccessDenied" { // an answer to HEAD has no code
				require.ErrorContains(t, err, "--addressing virtual")
			}
			a, err := src.Open(t.Context(), "x.tar", "", 0, 4)
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, a.Body)
			require.Equal(t, code, a.Code)
			require.Contains(t, a.Advice, "--addressing virtual")
		}
	}
}
