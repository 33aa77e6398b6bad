package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/stretchr/testify/require"
)

// throughPipe returns a flag with a descriptor that delivers text. wholeArgs closes the descriptor.
func throughPipe(t *testing.T, text string) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	fd, err := syscall.Dup(int(r.Fd())) // r is closed when it is garbage collected
	require.NoError(t, err)
	require.NoError(t, r.Close())
	go func() { _, _ = w.WriteString(text); _ = w.Close() }()
	return mounting.ArgsFlag + strconv.Itoa(fd)
}

func TestArgumentsFromDescriptorReplaceVisibleOnes(t *testing.T) {
	plain := []string{"mount", "data", "mnt", mounting.ArgsFlag + "77"}
	args, err := wholeArgs(plain)
	require.NoError(t, err)
	require.Equal(t, plain, args, "the flag counts right after the verb only")

	want := []string{"mount", "https://u:p@host/a?sig=1", "", "not UTF-8: \xff\n", strings.Repeat("x", 1<<17)}
	args, err = wholeArgs([]string{"mount", throughPipe(t, strings.Join(want[1:], "\x00")+"\x00"), "https://host/a"})
	require.NoError(t, err)
	require.Equal(t, want, args)

	args, err = wholeArgs([]string{"version", throughPipe(t, "")})
	require.NoError(t, err)
	require.Equal(t, []string{"version"}, args)
}

func TestTruncatedArgumentsAreRefused(t *testing.T) {
	for flag, message := range map[string]string{
		mounting.ArgsFlag + "x":                               "must be the number of an open file",
		mounting.ArgsFlag + "12345":                           "can't be read",
		throughPipe(t, "data\x00mn"):                          "does not end with a zero byte",
		throughPipe(t, strings.Repeat("x\x00", maxArgsBytes)): "more than 8388608 bytes",
	} {
		given := []string{"mount", flag, "--ready-fd=3"}
		args, err := wholeArgs(given)
		require.ErrorContains(t, err, message)
		require.Equal(t, exit.Usage, exit.CodeOf(err))
		require.Equal(t, given, args, "the parent is found by them")
	}
}
