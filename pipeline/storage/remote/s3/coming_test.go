package s3

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

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
