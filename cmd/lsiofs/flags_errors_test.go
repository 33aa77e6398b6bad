package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

func TestInvalidFlagsAreExplained(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"mount", "a", "b", "--worker", "4"}, "unknown flag: --worker: did you mean --workers? (see lsiofs mount --help)"},
		{[]string{"verify", "a", "--ordr"}, "unknown flag: --ordr: did you mean --order? (see lsiofs verify --help)"},
		{[]string{"cat", "a", "--jsn"}, "unknown flag: --jsn: did you mean --json? (see lsiofs cat --help)"},
		{[]string{"mount", "a", "b", "--nothing-like-it"}, "unknown flag: --nothing-like-it (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--epoch", "-1"}, "--epoch (-1) must be a whole number, 0 or more (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--read-timeout", "30"}, "--read-timeout (30) must be a time with its unit, such as 30s or 5m (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--log-level", "quiet"}, "--log-level (quiet) must be debug, info, warn or error (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--memory", "1x"}, `--memory: "1x" is not a size: write a number of bytes, or one with a unit, such as 256KiB or 1GiB (see lsiofs mount --help)`},
		{[]string{"cat", "a", "--exclude", "["}, `lsiofs: --exclude "[" is not well formed: check its brackets and braces (see lsiofs cat --help)`},
		{[]string{"mount", "a", "b", "--restore", "some"}, `--restore ("some") must be one of owner, all`},
		{[]string{"mount", "a", "b", "--while-pid", "0"}, "--while-pid (0) must be the number of a process"},
		{[]string{"cat"}, "lsiofs cat takes DATASET, but there are none (see lsiofs cat --help)"},
		{[]string{"cat", "a.tar", "b.tar"}, "lsiofs cat takes DATASET, but there are 2 arguments; quote patterns, as in 'shard-*.tar', so that the shell does not expand them"},
		{[]string{"version", "a"}, "lsiofs version takes no arguments, but there is one argument (see lsiofs version --help)"},
		{[]string{"mount", "a", "b", "--log-file", "x"}, "--log-file needs --daemon: in the foreground the log goes to stderr"},
		{[]string{"cat", "a", "--array", "t", "--crop", "5,4"}, `"t" is not NAME=PATTERN, such as 'x=x-*.npy'; an array of a Zarr store is named with --format zarr`},
		{[]string{"status", "a"}, `unknown command "status" for "lsiofs": did you mean top?`},
		{[]string{"nope"}, `unknown command "nope" for "lsiofs" (see lsiofs --help)`},
	} {
		r := lsiofs(t, c.args...)
		require.Equal(t, exit.Usage, r.code, c.args)
		require.Contains(t, r.stderr, c.want)
	}
}

// A URL may contain a secret, so errors about --mix don't quote it.
func TestMixtureSourceErrorsQuoteNoURL(t *testing.T) {
	for text, words := range map[string]string{
		"https://host/x.tar?sig=secret":           `--mix: "https://…" is not a source of a mixture`,
		"web=https://user:secret@host/x.tar":      `--mix: source web: its weight ("https") must be`,
		"https://host/x.tar?sig=secret:more":      `is not a name of a source`,
		"web=0:https://user:secret@host/x.tar":    `--mix: source web: its weight ("0") must be`,
		"Web=1:https://user:secret@host/x.tar":    `--mix: "Web" is not a name of a source`,
		"web=1.2345678:s3://bucket?secret=secret": `--mix: source web: its weight`,
	} {
		r := lsiofs(t, "inspect", "--mix", text, "--mix", "b=1:/nowhere")
		require.Equal(t, exit.Usage, r.code, text)
		require.Contains(t, r.stderr, words)
		require.NotContains(t, r.stderr, "secret", text)
	}
}
