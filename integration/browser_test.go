package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// browser is a headless Chromium with one page. It is controlled through pipes at its file
// descriptors 3 and 4, one JSON document a message, each followed by a zero byte (the DevTools
// protocol).
type browser struct {
	t        testing.TB
	ctx      context.Context
	in       *os.File
	messages <-chan message
	session  string
	id       int
	// seen are the events received so far.
	seen []message
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// startBrowser starts a browser, which ends with the test.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	path := need(t, "chromium")
	ctx, cancel := context.WithTimeout(context.Background(), mountLimit) // for everything that a test does with it
	home := serve.ShortDir(t)                                            // short, because it creates sockets there
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
		"--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+home, "about:blank")
	// Everything that it writes is removed with the test's directory.
	cmd.Env = append(environment(home), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.WaitDelay = clientLimit
	// Killing it also kills the processes that it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	theirs, in, err := os.Pipe()
	require.NoError(t, err)
	out, theirOut, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	theirs.Close()
	theirOut.Close()

	messages := make(chan message)
	read := make(chan struct{})
	go func() { // ends when the browser closes its end
		defer close(read)
		defer close(messages)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var m message
			if json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m) != nil {
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		in.Close()
		out.Close()
		<-read
		// Those of its processes that are not waited for here may still be writing.
		until(t, nil, func() bool { return os.RemoveAll(home) == nil })
		if t.Failed() {
			t.Logf("chromium: %s", stderr.String())
		}
	})
	b := &browser{t: t, ctx: ctx, in: in, messages: messages}
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Network", "Log", "Runtime"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	return b
}

// next waits for a message. It keeps events.
func (b *browser) next() message {
	b.t.Helper()
	select {
	case m, ok := <-b.messages:
		require.True(b.t, ok, "the browser has ended")
		if m.Method != "" {
			b.seen = append(b.seen, m)
		}
		return m
	case <-b.ctx.Done():
		require.NoError(b.t, b.ctx.Err(), "the browser does not answer")
		return message{}
	}
}

// call calls a method and waits for the answer, which it stores in result unless that is nil.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.id++
	doc, err := json.Marshal(struct {
		ID        int    `json:"id"`
		SessionID string `json:"sessionId,omitempty"`
		Method    string `json:"method"`
		Params    any    `json:"params,omitempty"`
	}{b.id, b.session, method, params})
	require.NoError(b.t, err)
	_, err = b.in.Write(append(doc, 0))
	require.NoError(b.t, err)
	for {
		m := b.next()
		if m.ID != b.id {
			continue
		}
		require.Nilf(b.t, m.Error, "%s: %+v", method, m.Error)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

// open shows a page in a window of the given size, in a light or dark scheme.
func (b *browser) open(url string, width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.seen = nil
	// The previous page may still report the end of its own loading.
	var loading, event struct{ LoaderID, Name string }
	b.call("Page.navigate", map[string]any{"url": url}, &loading)
	require.NotEmpty(b.t, loading.LoaderID)
	for i := 0; event.LoaderID != loading.LoaderID || event.Name != "load"; i++ {
		for i == len(b.seen) {
			b.next()
		}
		if b.seen[i].Method == "Page.lifecycleEvent" {
			require.NoError(b.t, json.Unmarshal(b.seen[i].Params, &event))
		}
	}
}

// evaluate returns the value of a JavaScript expression. It waits for a promise.
func (b *browser) evaluate(expression string, value any) {
	b.t.Helper()
	var r struct {
		Result struct{ Value json.RawMessage }
		Detail json.RawMessage `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	require.Emptyf(b.t, r.Detail, "%s: %s", expression, r.Detail)
	require.NoError(b.t, json.Unmarshal(r.Result.Value, value))
}

// screenshot returns an image of the whole page, including what is outside the window.
func (b *browser) screenshot() image.Image {
	b.t.Helper()
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &r)
	raw, err := base64.StdEncoding.DecodeString(r.Data)
	require.NoError(b.t, err)
	if dir := os.Getenv("LSIOFS_SCREENSHOTS"); dir != "" { // for people
		b.id++
		require.NoError(b.t, os.WriteFile(fmt.Sprintf("%s/page-%03d.png", dir, b.id), raw, 0o644))
	}
	img, err := png.Decode(bytes.NewReader(raw))
	require.NoError(b.t, err)
	return img
}

// complaints lists errors, warnings, and requests for anything that is not the page itself,
// embedded in it, or below it.
func (b *browser) complaints(page string) (list []string) {
	for _, m := range b.seen {
		switch m.Method {
		case "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown":
			list = append(list, m.Method+": "+string(m.Params))
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			require.NoError(b.t, json.Unmarshal(m.Params, &p))
			if !strings.HasPrefix(p.Request.URL, page) && !strings.HasPrefix(p.Request.URL, "data:") {
				list = append(list, "request: "+p.Request.URL)
			}
		}
	}
	return list
}
