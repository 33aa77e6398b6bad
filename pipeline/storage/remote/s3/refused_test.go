package s3

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

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
