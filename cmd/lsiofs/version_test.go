package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

func TestVersion(t *testing.T) {
	var b build.Info
	require.NoError(t, json.Unmarshal([]byte(ok(t, "version", "--json").stdout), &b))
	require.Equal(t, runtime.Version(), b.Go)
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, b.Platform)
	require.NotEmpty(t, b.Version)
	require.Contains(t, ok(t, "version").stdout, "lsiofs "+b.Version+"\n")

	var out bytes.Buffer
	require.NoError(t, printVersion(build.Info{Version: "v1.2.3", Commit: "abc", Modified: true, Go: "go1.26", Platform: "linux/arm64"}, terminal.New(&out, &out)))
	require.Equal(t, "lsiofs v1.2.3\ncommit   abc (modified)\ngo       go1.26\nplatform linux/arm64\n", out.String())
}

func TestCompletionScriptsAreGenerated(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, ok(t, "completion", shell).stdout, "lsiofs")
	}
	require.Contains(t, ok(t, "__complete", "mount", "--shuffle", "").stdout, "reservoir\n")
}
