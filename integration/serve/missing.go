package serve

import (
	"fmt"
	"os"
	"testing"
)

// Missing ends a test that needs something this machine does not have: it skips the test with the
// reason, or fails it if nothing may be missing (CI=true).
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...) + "; integration/check installs what the tests use"
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and nothing may be missing: " + reason)
	}
	t.Skip(reason)
}

// NeedFUSE ends a test if nothing can be mounted.
func NeedFUSE(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		Missing(t, "FUSE does not work here: %v", err)
	}
	_ = f.Close()
}
