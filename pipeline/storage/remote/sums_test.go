package remote

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// checked holds the checksums of "123456789", as catalogues of CRCs and the SHA tools list them.
var checked = map[string]string{
	"crc32": "cbf43926", "crc32c": "e3069283", "crc64nvme": "ae8b14860a799888", "md5": "25f9e794323b453885f5181f1b624d0b",
	"sha-1":   "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
	"sha-256": "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
}

func in64(t *testing.T, algorithm string) string {
	b, err := hex.DecodeString(checked[algorithm])
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(b)
}

func TestChecksumsMatchTheirAlgorithms(t *testing.T) {
	for algorithm := range checked {
		var s Sums
		s.add(algorithm, in64(t, algorithm), "x")
		require.Len(t, s.Sums, 1, algorithm)
		wrong, err := s.Differs(func(w io.Writer) error { _, err := io.WriteString(w, "123456789"); return err })
		require.NoError(t, err)
		require.Nil(t, wrong, algorithm)
		wrong, err = s.Differs(func(w io.Writer) error { _, err := io.WriteString(w, "123456788"); return err })
		require.NoError(t, err)
		require.Equal(t, algorithm, wrong.Algorithm)
	}
	failed := errors.New("failed")
	_, err := Sums{}.Differs(func(io.Writer) error { return failed })
	require.ErrorIs(t, err, failed)
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestWebServerChecksums(t *testing.T) {
	algorithms := func(h http.Header) (names []string) {
		s := WebSums(h)
		require.Equal(t, len(s.Sums) == 0, s.Why != "")
		for _, sum := range s.Sums {
			names = append(names, sum.Algorithm)
		}
		return names
	}
	crc, md5, sha := in64(t, "crc32c"), in64(t, "md5"), in64(t, "sha-256")
	require.Equal(t, []string{"crc32c", "md5"}, algorithms(header("X-Goog-Hash", "crc32c="+crc+",md5="+md5)))
	require.Equal(t, []string{"crc32c", "md5"}, algorithms(header("X-Goog-Hash", "crc32c="+crc, "X-Goog-Hash", "md5="+md5, "X-Goog-Stored-Content-Encoding", "identity")))
	require.Empty(t, algorithms(header("X-Goog-Hash", "crc32c="+crc, "X-Goog-Stored-Content-Encoding", "gzip")), "of what is stored")
	require.Equal(t, []string{"sha-256"}, algorithms(header("Repr-Digest", "sha-256=:"+sha+":, unixsum=:AAA=:")))
	require.Empty(t, algorithms(header("Repr-Digest", "sha-256="+sha)))
	require.Equal(t, []string{"sha-256", "sha-1"}, algorithms(header("Digest", "SHA-256="+sha+",SHA="+in64(t, "sha-1"))))
	require.Equal(t, []string{"md5"}, algorithms(header("Content-MD5", md5)))
	require.Empty(t, algorithms(header("Content-MD5", crc)), "it is too short")
	require.Empty(t, algorithms(header("Content-MD5", "no base64!", "ETag", `"25f9e794323b453885f5181f1b624d0b"`)))
}

func TestBucketChecksums(t *testing.T) {
	crc, etag := in64(t, "crc32c"), `"25f9e794323b453885f5181f1b624d0b"`
	for _, c := range []struct {
		h    http.Header
		from string
		why  string
	}{
		{header("X-Amz-Checksum-Crc32c", crc, "ETag", etag), "x-amz-checksum-crc32c", ""},
		{header("X-Amz-Checksum-Crc64nvme", in64(t, "crc64nvme"), "X-Amz-Checksum-Type", "FULL_OBJECT", "ETag", `"ab-3"`), "x-amz-checksum-crc64nvme", ""},
		{header("X-Amz-Checksum-Sha256", in64(t, "sha-256")), "x-amz-checksum-sha256", ""},
		{header("X-Amz-Checksum-Crc32c", crc+"-3"), "", "parts' checksums"},
		{header("X-Amz-Checksum-Crc32c", crc, "X-Amz-Checksum-Type", "COMPOSITE", "ETag", `"ab-3"`), "", "uploaded in parts"},
		{header("ETag", etag), "ETag", ""},
		{header("ETag", etag, "X-Amz-Server-Side-Encryption", "AES256"), "ETag", ""},
		{header("ETag", etag, "X-Amz-Server-Side-Encryption", "aws:kms"), "", "encrypted"},
		{header("ETag", etag, "X-Amz-Server-Side-Encryption-Customer-Algorithm", "AES256"), "", "encrypted"},
		{header("ETag", `"0x8DABC"`), "", "no checksum"},
		{header(), "", "no checksum"},
	} {
		s := BucketSums(c.h)
		require.Contains(t, s.Why, c.why, "%v", c.h)
		if c.from == "" {
			require.Empty(t, s.Sums, "%v", c.h)
			require.NotEmpty(t, s.Why)
			continue
		}
		require.Len(t, s.Sums, 1, "%v", c.h)
		require.Equal(t, c.from, s.Sums[0].Where)
	}
}
