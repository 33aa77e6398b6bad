package integration

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// startTop makes lsiofs top listen on a free port until the test ends.
func startTop(t *testing.T, points ...string) (url string, ended <-chan struct{}, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command(lsiofs, append([]string{"top", "--json", "--listen", "0"}, points...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	ended = launch(t, cmd)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err)
	var said struct{ URL string }
	require.NoError(t, json.Unmarshal(line, &said))
	return said.URL, ended, cmd
}

// TestThePageOfTopInABrowser shows the page of a mount that is being read, as people see it, and
// requests it from another origin's page. No unit test can show what a browser draws and refuses.
func TestThePageOfTopInABrowser(t *testing.T) {
	serve.Tier(t, serve.CI)
	m := mountDataset(t, plain(t, "tar", 3), usual())
	m.read("worker-0.tar")
	url, ended, top := startTop(t, m.dir)
	b := startBrowser(t)
	drawn := func() {
		until(t, ended, func() bool {
			var lines int
			b.evaluate(`[...document.querySelectorAll('.curve path')].filter(p => /L/.test(p.getAttribute('d'))).length`, &lines)
			return lines > 1
		}, "the curves")
	}
	for _, c := range windows {
		t.Run(c.name, func(t *testing.T) {
			b.open(url, c.width, c.height, c.scheme)
			drawn()
			var l struct {
				Width, ScrollWidth, Height int
				Sections                   []box
				Wide                       []string
			}
			b.evaluate(layout, &l)
			require.Empty(t, l.Wide)
			require.Equal(t, c.width, l.ScrollWidth, "nothing has to be scrolled sideways")
			shot := b.screenshot()
			require.Equal(t, c.dark, isDark(shot))
			require.Len(t, l.Sections, 2, "a header, and a mount")
			for _, s := range l.Sections {
				ink, colours := inkOf(shot, s)
				require.Greaterf(t, ink, 0.004, "%s of %v is as good as empty", s.Name, s)
				require.Greaterf(t, colours, 2, "%s", s.Name)
			}
			var text string
			b.evaluate(`document.body.innerText`, &text)
			for _, words := range []string{m.dir, "worker-0.tar", "worker-1.tar", "themselves", "decompress", "memory", "records", "one mount"} {
				require.Contains(t, text, words)
			}
			require.Empty(t, b.complaints(url))
		})
	}

	t.Run("the page of another origin sees nothing", func(t *testing.T) {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<!doctype html><iframe src="`+url+`"></iframe><script src="`+url+`board.json"></script>`)
		}))
		defer other.Close()
		b.open(other.URL, 390, 844, "light")
		for _, ask := range []string{"{}", "{mode: 'no-cors'}", "{mode: 'cors', credentials: 'include'}"} {
			var got string
			b.evaluate(`fetch('`+url+`board.json', `+ask+`).then(a => a.text(), () => '')`, &got)
			require.Empty(t, got, ask)
		}
	})

	t.Run("a mount that is gone", func(t *testing.T) {
		b.open(url, 1280, 800, "light")
		drawn()
		m.end()
		until(t, ended, func() bool {
			var text string
			b.evaluate(`document.querySelector('.message') ? document.querySelector('.message').textContent : ''`, &text)
			return strings.Contains(text, m.dir+" was unmounted, or its server ended")
		}, "the page says so")
	})
	require.NoError(t, top.Process.Signal(syscall.SIGINT))
	<-ended
	require.Equal(t, 130, top.ProcessState.ExitCode())
}

// TestTopListensForPrometheus makes promtool read the metrics of two mounts, and checks that they
// contain every metric that examples/prometheus names.
func TestTopListensForPrometheus(t *testing.T) {
	serve.Tier(t, serve.CI)
	promtool := need(t, "promtool")
	d := plain(t, "tar", 3)
	a, b := mountDataset(t, d, usual()), mountDataset(t, d, usual())
	a.read("worker-0.tar")
	url, ended, _ := startTop(t, a.dir, b.dir)
	var text string
	until(t, ended, func() bool {
		r, err := http.Get(url + "metrics")
		require.NoError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		text = string(body)
		return strings.Contains(text, `lsiofs_up{mount="`+b.dir+`"} 1`)
	}, "both mounts")
	require.Contains(t, text, `lsiofs_up{mount="`+a.dir+`"} 1`)
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))

	// The metrics that the example uses exist.
	example := filepath.Join("..", "examples", "prometheus")
	out, err = exec.Command(promtool, "check", "config", filepath.Join(example, "prometheus.yml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range metricsNamedIn(t, filepath.Join(example, "dashboard.json"), filepath.Join(example, "rules.yml")) {
		require.Contains(t, text, "# TYPE "+name+" ", "examples/prometheus names %s", name)
	}
}

// metricsNamedIn returns the names of our metrics in files.
func metricsNamedIn(t *testing.T, paths ...string) []string {
	t.Helper()
	names := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\blsiofs_[a-z_]+\b`).FindAllString(string(text), -1) {
			names[name] = true
		}
	}
	require.NotEmpty(t, names)
	return slices.Sorted(maps.Keys(names))
}
