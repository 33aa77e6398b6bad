package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// configure writes the files with profiles.
func configure(t *testing.T, config, keys string) {
	require.NoError(t, os.WriteFile(os.Getenv("AWS_CONFIG_FILE"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), []byte(keys), 0o600))
}

// keyOf returns the access key that a request was signed with.
func keyOf(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ := strings.Cut(rest, "/")
	return key
}

// Tries each place on its own, and then the first of those that are set up.
func TestCredentialsAreFoundInAmazonLocations(t *testing.T) {
	expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	role := func(id string) string {
		return fmt.Sprintf(`{"Code": "Success", "AccessKeyId": %q, "SecretAccessKey": "hunter2", "Token": "hunter3", "Expiration": %q}`, id, expires)
	}
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/container" && r.Header.Get("Authorization") == "hunter4":
			_, _ = io.WriteString(w, role("container"))
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			_, _ = io.WriteString(w, "imds")
		case r.Header.Get("X-aws-ec2-metadata-token") != "imds":
			w.WriteHeader(401)
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			_, _ = io.WriteString(w, "role")
		default:
			_, _ = io.WriteString(w, role("machine"))
		}
	}))
	t.Cleanup(local.Close)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "sts.") {
			require.NoError(t, r.ParseForm())
			require.Equal(t, "hunter5", r.Form.Get("WebIdentityToken"))
			_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>
				<AccessKeyId>identity</AccessKeyId><SecretAccessKey>hunter2</SecretAccessKey><SessionToken>hunter3</SessionToken><Expiration>%s</Expiration>
				</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, expires)
			return
		}
		w.Header().Set("ETag", `"v1"`)
	})
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	signedBy := func() string {
		_, err := s.open(t, "s3://bucket/", Options{Region: "eu-west-1"}).Head(t.Context(), "x")
		require.NoError(t, err)
		return keyOf(s.last())
	}
	// From the last place to the first.
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", local.URL)
	require.Equal(t, "machine", signedBy())
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", local.URL+"/container")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hunter4")
	require.Equal(t, "container", signedBy())
	configure(t, "[default]\nregion = eu-central-1\n", "")
	require.Equal(t, "container", signedBy(), "a profile without keys is none")

	process := filepath.Join(t.TempDir(), "process")
	require.NoError(t, os.WriteFile(process, []byte("#!/bin/sh\necho '{\"Version\": 1, \"AccessKeyId\": \"'$1'\", \"SecretAccessKey\": \"hunter2\"}'\n"), 0o700))
	configure(t, "[profile p]\ncredential_process = "+process+" process\n[default]\ncredential_process = "+process+" default\n", "[static]\naws_access_key_id = static\naws_secret_access_key = hunter2\n")
	require.Equal(t, "default", signedBy())
	t.Setenv("AWS_PROFILE", "p")
	require.Equal(t, "process", signedBy())
	t.Setenv("AWS_PROFILE", "static")
	require.Equal(t, "static", signedBy())

	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("hunter5"), 0o600))
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")
	require.Equal(t, "identity", signedBy())
	require.Equal(t, "hunter3", s.last().Header.Get("X-Amz-Security-Token"))
	t.Setenv("AWS_ACCESS_KEY_ID", "environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	require.Equal(t, "environment", signedBy())
}

// The error lists the places, and without credentials no request is made.
func TestMissingCredentialsErrorListsCheckedLocations(t *testing.T) {
	s := serve(t, nil)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	configure(t, "# nothing", "# nothing")
	src := s.open(t, "s3://bucket/", Options{Region: "eu-west-1"})
	_, err := src.Open(t.Context(), "x", "", 0, 1)
	var refusal *remote.Refusal
	require.ErrorAs(t, err, &refusal)
	for _, word := range []string{
		"no credentials were found", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment (not set)", "AWS_WEB_IDENTITY_TOKEN_FILE (not set)",
		`profile "default" in ` + os.Getenv("AWS_CONFIG_FILE"), "container's role", "AWS_EC2_METADATA_DISABLED is set", "--anonymous",
	} {
		require.ErrorContains(t, err, word)
	}
	require.Empty(t, s.requests())

	// A machine without a metadata service: nothing listens on its port.
	dead := httptest.NewServer(nil)
	dead.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", dead.URL)
	_, err = s.open(t, "s3://bucket/", Options{Region: "eu-west-1"}).Head(t.Context(), "x")
	require.ErrorContains(t, err, "metadata service (")
	require.ErrorContains(t, err, "refused")
}

// The wrong credentials are never printed.
func TestMisconfiguredCredentialsAreReportedAndNotReplaced(t *testing.T) {
	const good = "[default]\naws_access_key_id = good\naws_secret_access_key = hunter2\n"
	for word, setUp := range map[string]func(){
		"in the environment: there are no keys": func() { t.Setenv("AWS_ACCESS_KEY_ID", "half") },
		`profile "other"`:                       func() { t.Setenv("AWS_PROFILE", "other") },
		"there is no such profile":              func() { t.Setenv("AWS_DEFAULT_PROFILE", "other") },
		"give both":                             func() { configure(t, "", "[default]\naws_secret_access_key = hunter2\n") },
		"credential_process = aws configure":    func() { configure(t, "[default]\nrole_arn = arn:x\nsource_profile = y\n", "") },
		"neither [SECTION] nor KEY":             func() { configure(t, "", "[default]\nhunter2\n") },
		"exit status 127: it says: run my-login; then again": func() {
			configure(t, "[default]\ncredential_process = /bin/sh -c 'echo hunter2; echo run my-login >&2; echo then again >&2; exit 127'\n", "")
		},
		"is not JSON with keys":     func() { configure(t, "[default]\ncredential_process = echo hunter2\n", "") },
		"a quote (\") in it":        func() { configure(t, "[default]\ncredential_process = echo \"hunter2\n", "") },
		"executable file not found": func() { configure(t, "[default]\ncredential_process = no-such-program-here\n", "") },
		"keys of version 2": func() {
			configure(t, "[default]\ncredential_process = echo '{\"Version\": 2, \"AccessKeyId\": \"hunter2\"}'\n", "")
		},
	} {
		s := serve(t, nil)
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		configure(t, "", good)
		setUp()
		src, _, err := Open(t.Context(), bucket(t, "s3://bucket/"), Options{Region: "eu-west-1", Transport: amazon{transport(t), s.server.Listener.Addr().String()}})
		if err == nil {
			_, err = src.Head(t.Context(), "x")
			require.NoError(t, src.Close())
		}
		var refusal *remote.Refusal
		require.ErrorAs(t, err, &refusal, word)
		require.ErrorContains(t, err, word)
		require.NotContains(t, err.Error(), "hunter2")
		require.Empty(t, s.requests())
	}
}

// Secrets of orchestrators end in a newline. A newline inside of one is an error, and not a request
// that can't be sent.
func TestSpaceAroundKeysIsIgnored(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"v1"`) })
	t.Setenv("AWS_ACCESS_KEY_ID", " spaced\n")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2\r\n")
	t.Setenv("AWS_SESSION_TOKEN", "hunter3\n")
	_, err := s.open(t, "s3://bucket/", Options{Region: "eu-west-1"}).Head(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, "spaced", keyOf(s.last()))
	require.Equal(t, "hunter3", s.last().Header.Get("X-Amz-Security-Token"))

	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2\nhunter4")
	_, err = s.open(t, "s3://bucket/", Options{Region: "eu-west-1"}).Head(t.Context(), "x")
	var refusal *remote.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "a control character in them, such as a newline")
	require.NotContains(t, err.Error(), "hunter")
	require.Len(t, s.requests(), 1)
}

// lease is a provider whose credentials expire when due is set.
type lease struct{ due *atomic.Bool }

func (l lease) IsExpired() bool                      { return l.due.Load() }
func (l lease) Retrieve() (credentials.Value, error) { return credentials.Value{}, nil }
func (l lease) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return credentials.Value{}, nil
}

// issuer issues credentials 1, 2, 3 …, each for a minute, or fails.
type issuer struct {
	now    atomic.Pointer[time.Time]
	due    atomic.Bool
	issued atomic.Int64
	fail   atomic.Bool
	hold   chan struct{} // nil: it answers at once
}

func (i *issuer) keys(t *testing.T) *keys {
	start := time.Now()
	i.now.Store(&start)
	place := &origin{name: "issuer", provider: lease{&i.due}, every: againService}
	k := newKeys(func(ctx context.Context, _ func(*origin)) (held, error) {
		if i.hold != nil {
			select {
			case <-i.hold:
			case <-ctx.Done():
				return held{}, ctx.Err()
			}
		}
		n := i.issued.Add(1)
		if i.fail.Load() {
			return held{}, errors.New("not now")
		}
		i.due.Store(false)
		return held{credentials.Value{AccessKeyID: fmt.Sprint(n), Expiration: i.now.Load().Add(time.Minute)}, place}, nil
	})
	k.now = func() time.Time { return *i.now.Load() }
	t.Cleanup(k.close)
	return k
}

func (i *issuer) pass(d time.Duration) {
	later := i.now.Load().Add(d)
	i.now.Store(&later)
}

func TestCredentialsAreRenewedBeforeTheyExpire(t *testing.T) {
	i := &issuer{}
	k := i.keys(t)
	get := func() string {
		v, err := k.get(t.Context())
		require.NoError(t, err)
		return v.AccessKeyID
	}
	require.Equal(t, "1", get())
	require.Equal(t, "1", get())
	i.due.Store(true)
	require.Equal(t, "2", get())

	// While they can't be renewed the old ones are used, until they have expired.
	i.fail.Store(true)
	i.due.Store(true)
	require.Equal(t, "2", get())
	n := i.issued.Load()
	require.Equal(t, "2", get())
	require.Equal(t, n, i.issued.Load(), "not with each request")
	i.pass(againService)
	require.Equal(t, "2", get())
	require.Equal(t, n+1, i.issued.Load())
	i.pass(time.Minute)
	_, err := k.get(t.Context())
	require.ErrorContains(t, err, "renewing credentials: not now")
	var refusal *remote.Refusal
	require.False(t, errors.As(err, &refusal), "what fails now may pass")
	i.fail.Store(false)
	_, err = k.get(t.Context())
	require.ErrorContains(t, err, "not now", "the place is looked at again every some seconds")
	i.pass(againService)
	require.NotEqual(t, "2", get())
}

// A hundred answers with ExpiredToken cause one search.
func TestConcurrentFailedRequestsRenewOnce(t *testing.T) {
	i := &issuer{}
	k := i.keys(t)
	ask := func() {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := k.get(t.Context())
				require.NoError(t, err)
			})
		}
		all.Wait()
	}
	ask()
	require.EqualValues(t, 1, i.issued.Load())
	k.expire()
	ask()
	require.EqualValues(t, 1, i.issued.Load(), "they have just been made")
	i.pass(againService)
	for range 100 {
		k.expire()
	}
	ask()
	k.expire()
	ask()
	require.EqualValues(t, 2, i.issued.Load())
}

func TestCancelledRequestDoesNotWaitForCredentials(t *testing.T) {
	i := &issuer{hold: make(chan struct{})}
	k := i.keys(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.get(ctx)
	require.ErrorIs(t, err, context.Canceled)
	close(i.hold)
	v, err := k.get(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1", v.AccessKeyID, "the search went on for others")

	held := &issuer{hold: make(chan struct{})} // close, called by the cleanup, ends its search
	_, err = held.keys(t).get(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// A place that is set up and has no credentials yet is checked again: the error of the first look
// is not final.
func TestLateCredentialsAreFound(t *testing.T) {
	expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	var up atomic.Bool
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !up.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
			_, _ = io.WriteString(w, "role")
		default:
			_, _ = fmt.Fprintf(w, `{"Code": "Success", "AccessKeyId": "late", "SecretAccessKey": "hunter2", "Token": "hunter3", "Expiration": %q}`, expires)
		}
	}))
	t.Cleanup(local.Close)
	token := filepath.Join(t.TempDir(), "token")
	const keys = "[default]\naws_access_key_id = late\naws_secret_access_key = hunter2\n"
	for name, place := range map[string]struct {
		setUp, come func(t *testing.T)
		says        string
	}{
		"a metadata service that does not answer yet": {
			func(t *testing.T) {
				t.Setenv("AWS_EC2_METADATA_DISABLED", "")
				t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", local.URL)
			},
			func(*testing.T) { up.Store(true) }, "503 Service Unavailable",
		},
		"a container's service that is not up": {
			func(t *testing.T) { t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", local.URL+"/container") },
			func(*testing.T) { up.Store(true) }, "503 Service Unavailable",
		},
		"a token that is not written yet": {
			func(t *testing.T) {
				up.Store(true)
				t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", local.URL+"/container")
				t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)
			},
			func(t *testing.T) { require.NoError(t, os.WriteFile(token, []byte("token"), 0o600)) }, token,
		},
		"a file of keys that is not there": {
			func(t *testing.T) {
				require.NoError(t, os.WriteFile(os.Getenv("AWS_CONFIG_FILE"), []byte("[default]\nregion = eu-west-1\n"), 0o600))
				_ = os.Remove(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"))
			},
			func(t *testing.T) { configure(t, "", keys) }, "no credentials were found",
		},
		"a profile whose files are empty": {
			func(t *testing.T) {
				t.Setenv("AWS_PROFILE", "late")
				configure(t, "", "")
			},
			func(t *testing.T) { configure(t, strings.Replace(keys, "default", "profile late", 1), "") }, "not there yet, or empty",
		},
		"a process that fails": {
			func(t *testing.T) {
				configure(t, "[default]\ncredential_process = /bin/sh -c 'echo run my-login >&2; exit 3'\n", "")
			},
			func(t *testing.T) {
				configure(t, "[default]\ncredential_process = /bin/sh -c 'echo \"{\\\"Version\\\": 1, \\\"AccessKeyId\\\": \\\"late\\\", \\\"SecretAccessKey\\\": \\\"hunter2\\\"}\"'\n", "")
			},
			"exit status 3: it says: run my-login",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"v1"`) })
			up.Store(false)
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "")
			configure(t, "# nothing", "# nothing")
			place.setUp(t)
			shared, err := NewCredentials(findTimeout)
			require.NoError(t, err)
			t.Cleanup(shared.Close)
			head := func() error {
				o := Options{Region: "eu-west-1", Transport: amazon{transport(t), s.server.Listener.Addr().String()}, Credentials: shared, Await: true}
				src, _, err := Open(t.Context(), bucket(t, "s3://bucket/"), o)
				if err != nil {
					return err
				}
				_, err = src.Head(t.Context(), "x")
				require.NoError(t, src.Close())
				return err
			}
			for range 2 { // the second one gets the result of the first look
				err = head()
				require.ErrorContains(t, err, place.says)
				var refusal *remote.Refusal
				require.NotErrorAs(t, err, &refusal, "it may come")
			}
			place.come(t)
			for _, k := range shared.all {
				k.now = func() time.Time { return time.Now().Add(againProcess) }
			}
			require.NoError(t, head())
			require.Equal(t, "late", keyOf(s.last()))
		})
	}
}

func TestPendingCredentialLocationsAreCheckedLessOften(t *testing.T) {
	o := &origin{every: againService}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 8 * time.Second, againService, againService}, []time.Duration{o.pause(1), o.pause(2), o.pause(4), o.pause(5), o.pause(1000)})
}
