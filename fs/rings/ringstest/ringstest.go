// Package ringstest enables FUSE over io_uring for tests.
package ringstest

import (
	"os"
	"testing"

	"github.com/lsiofs/lsiofs/fs/rings"
)

// SwitchOn enables rings in the kernel, which requires root. They stay enabled, since tests of
// other packages may use them at the same time; mounts that don't ask for rings are not affected.
func SwitchOn() error {
	if rings.Offered() == nil {
		return nil
	}
	if _, err := os.Stat(rings.Parameter); err != nil {
		return rings.Offered()
	}
	if err := os.WriteFile(rings.Parameter, []byte("Y"), 0); err != nil {
		return err
	}
	return rings.Offered()
}

// Need is SwitchOn; if that fails, it skips the test, or fails it in CI.
func Need(t testing.TB) {
	t.Helper()
	if err := SwitchOn(); err == nil {
		return
	} else if os.Getenv("CI") != "" {
		t.Fatal(err)
	} else {
		t.Skip(err)
	}
}
