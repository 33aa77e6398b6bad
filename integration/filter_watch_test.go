package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Files arrive in all the ways that writers use while a filter watches. The filter is killed
// repeatedly, and a growing mount serves its results. The mount only delivers whole results, and in
// the end DST is the filtered SRC, without what has been deleted.
func TestFilterSurvivesKillsWhileItsResultsAreMounted(t *testing.T) {
	t.Parallel() // files are taken a second after they have arrived
	needFUSE(t)
	t.Logf("again: -drawseed %d", *drawSeed)
	r := rand.New(rand.NewPCG(*drawSeed, 31))
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "made")
	require.NoError(t, os.Mkdir(dst, 0o755))
	want := map[string]string{} // results by path
	records := map[string]bool{}
	number := 0
	text := func() string {
		var b strings.Builder
		for i := range 1 + r.IntN(5) {
			fmt.Fprintf(&b, "line %d of file %d %s\n", i, number, strings.Repeat("x", r.IntN(2000)))
		}
		for line := range strings.Lines(strings.ToUpper(b.String())) {
			records[line] = true
		}
		number++
		return b.String()
	}
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	var open []func() // functions that finish half-written files
	arrive := func() {
		name, all := fmt.Sprintf("game.%d.txt", number), text()
		want[name] = strings.ToUpper(all)
		path := filepath.Join(src, name)
		switch r.IntN(4) {
		case 0:
			write(path+".tmp", all)
			require.NoError(t, os.Rename(path+".tmp", path))
		case 1:
			write(path, all)
		case 2: // slowly
			f, err := os.Create(path)
			require.NoError(t, err)
			half := r.IntN(len(all))
			_, err = f.WriteString(all[:half])
			require.NoError(t, err)
			open = append(open, func() {
				_, err := f.WriteString(all[half:])
				require.NoError(t, err)
				require.NoError(t, f.Close())
			})
		default: // in a directory that is moved in
			dir := filepath.Join(t.TempDir(), "part")
			require.NoError(t, os.Mkdir(dir, 0o755))
			write(filepath.Join(dir, name), all)
			delete(want, name)
			part := fmt.Sprintf("part-%d", number)
			want[part+"/"+name] = strings.ToUpper(all)
			require.NoError(t, os.Rename(dir, filepath.Join(src, part)))
		}
	}

	said := filepath.Join(t.TempDir(), "said")
	// filter starts a filter; exited is closed when the last one has ended.
	var exited <-chan struct{}
	filter := func() *exec.Cmd {
		t.Helper()
		log, err := os.OpenFile(said, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		defer func() { require.NoError(t, log.Close()) }()
		cmd := exec.Command(lsiofs, "filter", src, dst, "--watch", "--mirror", "--poll", "200ms", "--format", "lines", "--", "tr", "a-z", "A-Z")
		cmd.Env, cmd.Stderr = environment(filepath.Join(scratch, "tmp")), log
		exited = launch(t, cmd)
		return cmd
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		if err := serve.Until(clientLimit, exited, holds); err != nil {
			b, _ := os.ReadFile(said)
			t.Fatalf("%s: %v; the filter said:\n%s", what, err, b)
		}
	}
	arrive()
	for _, end := range open { // the mount waits for a first record
		end()
	}
	open = nil
	watching := filter()
	d := dataset{name: "made", dir: dst, ext: ".txt", flags: []string{"--format", "lines"}}
	m := mountAt(t, d, t.TempDir(), "--grow", "--run", filepath.Join(t.TempDir(), "run"), "--min-new", "1shards", "--index-dir", t.TempDir())
	for epoch := range 4 {
		results := resultsIn(t, dst)
		for range 25 {
			arrive()
		}
		eventually("some of them", func() bool { return len(resultsIn(t, dst)) > len(results) })
		_ = watching.Process.Kill()
		<-exited
		for _, end := range open { // with or without a running filter
			end()
		}
		open = nil
		watching = filter()
		b := m.read("epoch-%d/worker-0-of-1.txt", epoch)
		require.NotEmpty(t, b)
		for line := range strings.Lines(string(b)) {
			require.True(t, records[line], "epoch %d has %.80q", epoch, line)
		}
		toolOK(t, "next", m.dir, "--wait")
	}
	m.end()
	for name := range want {
		if r.IntN(4) == 0 {
			require.NoError(t, os.Remove(filepath.Join(src, name)))
			delete(want, name)
		}
	}
	eventually("all results", func() bool {
		got := resultsIn(t, dst)
		if len(got) != len(want) {
			return false
		}
		for name, text := range want {
			if got[name] != text {
				return false
			}
		}
		return true
	})
	require.NoError(t, watching.Process.Signal(os.Interrupt))
	<-exited
	require.Zero(t, watching.ProcessState.ExitCode(), "that is how it ends")
	b, err := os.ReadFile(said)
	require.NoError(t, err)
	require.NotContains(t, string(b), "SRC is looked at every", "the kernel reports")
}

// resultsIn returns the files that a mount would see.
func resultsIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil && os.IsNotExist(err) {
			return nil // it was deleted meanwhile
		}
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return err
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		name, _ := filepath.Rel(dir, path)
		files[name] = string(b)
		return err
	}))
	return files
}
