package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leaked waits until all goroutines of the tests have ended. A single goleak.Find gives them less
// than half a second, and a busy machine may take longer.
func leaked() (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// started is a server of two files under two names each, and the pipes to query it.
type started struct {
	Address
	questions io.Writer
	answers   *json.Decoder
}

func start(t *testing.T) started {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.tar"), bytes.Repeat([]byte("a"), 1000), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.tar"), bytes.Repeat([]byte("b"), 2000), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".lsiofs"), 0o700))
	toServer, questions := io.Pipe()
	answers, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(context.Background(), dir, 2, toServer, fromServer) }()
	t.Cleanup(func() {
		require.NoError(t, questions.Close())
		require.NoError(t, <-ended)
	})
	s := started{questions: questions, answers: json.NewDecoder(answers)}
	require.NoError(t, s.answers.Decode(&s.Address))
	return s
}

func (s started) served(t *testing.T) Served {
	_, err := io.WriteString(s.questions, "{}\n")
	require.NoError(t, err)
	var served Served
	require.NoError(t, s.answers.Decode(&served))
	return served
}

// ask requests a range, checks the status, and returns the body.
func (s started) ask(t *testing.T, status, object int, ranges string) string {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(object), nil)
	require.NoError(t, err)
	request.Header.Set("Range", ranges)
	request.Close = true
	began := time.Now()
	resp, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.GreaterOrEqual(t, time.Since(began), leastDelay)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, status, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("ETag"))
	return string(body)
}

func TestServerServesFilesUnderSeveralNamesAndReportsRequests(t *testing.T) {
	s := start(t)
	require.Equal(t, 4, s.Objects)
	require.Equal(t, "http://"+s.Host+"/{00000..00003}.tar", s.Dataset(4))
	require.Equal(t, "aaa", s.ask(t, http.StatusPartialContent, 0, "bytes=0-2"))
	require.Equal(t, "bb", s.ask(t, http.StatusPartialContent, 3, "bytes=1998-1999"))
	require.Len(t, s.ask(t, http.StatusOK, 2, ""), 1000)
	require.Equal(t, Served{Ranges: []Range{{0, 0, 3}, {3, 1998, 2}, {2, 0, -1}}}, s.served(t))
	require.Empty(t, s.served(t).Ranges, "each request is told once")
}

// The client reads each range once, whatever the number of concurrent requests, and whole objects.
func TestLoopReadsGivenRanges(t *testing.T) {
	s := start(t)
	ranges := []Range{{0, 0, 10}, {1, 100, 1900}, {2, 999, 1}, {3, 0, -1}}
	var in, out bytes.Buffer
	require.NoError(t, json.NewEncoder(&in).Encode(Job{Address: s.Address, Ranges: ranges, AtOnce: 3}))
	require.NoError(t, json.NewEncoder(&in).Encode(Job{Address: s.Address, Ranges: []Range{{1, 1999, 2}}, AtOnce: 1}))
	require.NoError(t, Loop(t.Context(), &in, &out, nil))
	answers := json.NewDecoder(&out)
	var done Done
	require.NoError(t, answers.Decode(&done))
	require.EqualValues(t, 10+1900+1+2000, done.Bytes)
	require.EqualValues(t, 4, done.Requests)
	require.Positive(t, done.Elapsed)
	require.Empty(t, done.Error)
	require.NoError(t, answers.Decode(&done))
	require.NotEmpty(t, done.Error, "a range that is not there is an error")
	served := s.served(t)
	require.ElementsMatch(t, append(ranges, Range{1, 1999, 2}), served.Ranges)
}

func TestLoopForwardsBytesItReads(t *testing.T) {
	s := start(t)
	var in, out, to bytes.Buffer
	require.NoError(t, json.NewEncoder(&in).Encode(Job{Address: s.Address, Ranges: []Range{{0, 0, 10}, {1, 100, 1900}}, AtOnce: 1}))
	require.NoError(t, Loop(t.Context(), &in, &out, &to))
	require.Equal(t, strings.Repeat("a", 10)+strings.Repeat("b", 1900), to.String())
}
