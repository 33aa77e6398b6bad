package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// Adding a flag to mount requires a decision.
func TestEachMountFlagIsAttributeOrExcludedForReason(t *testing.T) {
	help, err := exec.Command(filepath.Join(programs, "lsiofs"), "mount", "--help").Output()
	require.NoError(t, err)
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-h, )?--([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
		want = append(want, string(m[1]))
	}
	slices.Sort(want)
	got := slices.DeleteFunc(append(volume.Names(), volume.LeftOut()...), func(n string) bool { return n == "dataset" || n == "checkpoint" })
	slices.Sort(got)
	require.Equal(t, slices.Compact(want), got)
}

func TestAllCommandLineProblemsAreReportedAtOnce(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--endpoint=tcp://x", "--state=x", "--allow-path=y", "--allow-url=127.0.0.1:80", "--patience=0s", "--memory-limit=1MiB", "--lsiofs=/x"}, []string{"--node is missing", "--endpoint", "--state", "--allow-path", "--allow-url", "--patience", "--memory-limit (1.0 MiB)"}},
		{[]string{"mount"}, []string{"no arguments"}},
		{[]string{"--memory-limit=much"}, []string{"is not a size"}},
	} {
		_, err := parseFlags(c.args, &bytes.Buffer{})
		for _, w := range c.words {
			require.ErrorContains(t, err, w)
		}
	}
	var help bytes.Buffer
	_, err := parseFlags([]string{"--help"}, &help)
	require.Error(t, err)
	require.Contains(t, help.String(), "lsiofs-csi is a CSI node plugin")
}
