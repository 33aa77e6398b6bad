package main

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary the program itself: commands that start
// themselves again (mount --daemon, demo) then start this.
const asProgram = "LSIOFS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// result is what one run of the program gave.
type result struct {
	code           exitCode
	stdout, stderr string
}

// lsiofs runs the program in this process.
func lsiofs(t *testing.T, args ...string) result {
	t.Helper()
	return lsiofsContext(t.Context(), args...)
}

func lsiofsContext(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, &interrupts{force: context.Background()}, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// ok runs the program and expects success.
func ok(t *testing.T, args ...string) result {
	t.Helper()
	r := lsiofs(t, args...)
	require.Equal(t, exitOK, r.code, "lsiofs %v: %s", args, r.stderr)
	return r
}
