// Package ringstest gives tests FUSE over io_uring.
package ringstest

import (
	"os"
	"testing"

	"github.com/lsiofs/lsiofs/fs/rings"
)

// SwitchOn lets the kernel have rings from now on, which takes root. It stays on, since tests of other packages may use it
// at the same time; mounts that don't ask for rings are as they were.
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

// Need is SwitchOn, without which the test is skipped, or fails in CI.
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
