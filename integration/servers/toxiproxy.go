package servers

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Toxiproxy is a proxy program in front of servers. Its methods are for the test's own goroutine.
type Toxiproxy struct {
	t   testing.TB
	api string
}

// NewToxiproxy starts a Toxiproxy. seed determines which connections get a toxic whose share is
// less than 1, and how much a toxic varies: the nth draw is the same in each run.
func NewToxiproxy(t testing.TB, seed uint64) *Toxiproxy {
	t.Helper()
	program := Program(t, "toxiproxy")
	address := start(t, func(port string) *exec.Cmd {
		return exec.Command(program, "-host", "127.0.0.1", "-port", port, "-seed", strconv.FormatUint(seed&math.MaxInt64, 10))
	})
	return &Toxiproxy{t: t, api: "http://" + address}
}

// Before starts a proxy with the given name in front of a server (host:port), and returns the
// address to connect to instead.
func (p *Toxiproxy) Before(name, server string) (address string) {
	p.t.Helper()
	var made struct{ Listen string }
	p.call(http.MethodPost, "/proxies", map[string]any{"name": name, "listen": "127.0.0.1:0", "upstream": server, "enabled": true}, &made)
	return made.Listen
}

// Add applies a toxic to everything that comes from the server, such as latency, with the
// attributes latency and jitter in milliseconds; toxiproxy's documentation lists all of them. share
// is the fraction of connections that it applies to, 1 for all.
func (p *Toxiproxy) Add(name, toxic string, share float64, attributes map[string]int) {
	p.t.Helper()
	p.call(http.MethodPost, "/proxies/"+name+"/toxics", map[string]any{
		"name": toxic, "type": toxic, "stream": "downstream", "toxicity": share, "attributes": attributes,
	}, nil)
}

// Remove removes a toxic.
func (p *Toxiproxy) Remove(name, toxic string) {
	p.t.Helper()
	p.call(http.MethodDelete, "/proxies/"+name+"/toxics/"+toxic, nil, nil)
}

// Enable lets connections through, or refuses new ones and cuts existing ones.
func (p *Toxiproxy) Enable(name string, enabled bool) {
	p.t.Helper()
	p.call(http.MethodPost, "/proxies/"+name, map[string]any{"enabled": enabled}, nil)
}

func (p *Toxiproxy) call(method, path string, order, answer any) {
	p.t.Helper()
	body := &bytes.Buffer{}
	if order != nil {
		require.NoError(p.t, json.NewEncoder(body).Encode(order))
	}
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.api+path, body)
	require.NoError(p.t, err)
	request.Close = true
	resp, err := http.DefaultClient.Do(request)
	require.NoError(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.Less(p.t, resp.StatusCode, 300, "toxiproxy: %s %s: %s", method, path, text)
	if answer != nil {
		require.NoError(p.t, json.Unmarshal(text, answer))
	}
}
