package serve

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Run builds lsiofs, from the directory of its command, and runs the tests of a package. name
// identifies them. Everything that they make is in scratch, a new directory with a cache, a tmp and
// a tests directory, which is removed at the end; a mount, process or file that is left behind
// fails the run (and is removed, even if this process is killed: see Scratch). ready is called once
// the program is built. Run returns the process's exit code.
func Run(m *testing.M, name, command string, ready func(lsiofs, scratch string) error) (code int) {
	// A run that was started in the background ignores interrupts, and so would the programs that
	// it starts. Signals that are caught here have their default action in them.
	for _, sig := range []os.Signal{os.Interrupt, unix.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	Main()
	scratch, remove, err := Scratch(name)
	if err != nil {
		return fail(err)
	}
	lsiofs := filepath.Join(scratch, "lsiofs")
	defer func() {
		// Mounts first: removing a tree must never descend into one.
		if left := LeftOvers(lsiofs, scratch, filepath.Join(scratch, "tmp")); left != "" {
			code = fail(fmt.Errorf("the tests left behind:\n%s", left))
		}
		remove()
	}()
	for _, dir := range []string{"cache", "tmp", "tests"} {
		if err := os.Mkdir(filepath.Join(scratch, dir), 0o700); err != nil {
			return fail(err)
		}
	}
	unlink, err := shorten(filepath.Join(scratch, "tmp"))
	if err != nil {
		return fail(err)
	}
	defer unlink()
	if err := Build(lsiofs, command); err != nil {
		return fail(err)
	}
	if err := ready(lsiofs, scratch); err != nil {
		return fail(err)
	}
	// t.TempDir makes its directories here, so that at the end the mounts of this run are found,
	// and of no other.
	if err := os.Setenv("TMPDIR", filepath.Join(scratch, "tests")); err != nil {
		return fail(err)
	}
	return m.Run()
}
