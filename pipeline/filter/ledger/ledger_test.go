package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func entry(path string, n int) Entry {
	return Entry{
		Source: sha256.Sum256([]byte(path)), Filter: sha256.Sum256([]byte("filter")), Result: sha256.Sum256([]byte{byte(n)}),
		UnitsIn: uint64(n), UnitsOut: uint64(n) / 2, Records: uint64(n) * 100, Path: path,
	}
}

func opened(t *testing.T, dir string) *Ledger {
	l, err := Open(dir)
	require.NoError(t, err)
	return l
}

func TestEntryIsHumanReadableLine(t *testing.T) {
	e := entry("games/training.1.tar", 10)
	require.Equal(t, fmt.Sprintf("%x %x %x 10 5 1000 games/training.1.tar\n", e.Source[:], e.Filter[:], e.Result[:]), string(e.AppendLine(nil)))
}

func TestAddedEntriesAreFound(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	names := []string{"a.tar", "with blanks and ü.tar", "line\nend\\n.tar", "b/c.tar"}
	for i, name := range names {
		require.NoError(t, l.Add(entry(name, i), entry(name, i+1)))
	}
	require.NoError(t, l.Remove("b/c.tar"))
	require.NoError(t, l.Add(entry("last", 7)))
	for range 2 {
		for i, name := range names[:3] {
			e, ok := l.Get(name)
			require.True(t, ok)
			require.Equal(t, entry(name, i+1), e)
		}
		_, ok := l.Get("b/c.tar")
		require.False(t, ok)
		require.Len(t, l.Paths(), 4)
		require.NoError(t, l.Close())
		l = opened(t, dir)
	}
	require.NoError(t, l.Close())
	require.ErrorContains(t, l.Add(entry("x", 1)), "file already closed")
}

// A ledger is cut off at any position, as by a power failure: the complete lines count, and new
// lines are appended after them.
func TestIncompleteLineIsIgnored(t *testing.T) {
	var text []byte
	for i := range 3 {
		e := entry(fmt.Sprintf("shard-%d", i), i)
		text = e.AppendLine(text)
	}
	for n := range len(text) + 1 {
		if at := n % (len(text) / 3); at > 3 && at < len(text)/3-3 && at%40 != 0 {
			continue // within a field
		}
		for _, tail := range []string{"", "\x00\x00\x00"} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, Prefix), append(text[:n:n], tail...), 0o644))
			l := opened(t, dir)
			whole := bytes.Count(text[:n], []byte("\n"))
			require.Len(t, l.Paths(), whole)
			require.NoError(t, l.Add(entry("more", 1)))
			require.NoError(t, l.Close())
			l = opened(t, dir)
			require.Len(t, l.Paths(), whole+1)
			require.NoError(t, l.Close())
		}
	}
}

func TestDamagedLedgerErrorNamesLine(t *testing.T) {
	e := entry("a", 1)
	line := string(e.AppendLine(nil))
	for name, bad := range map[string]string{
		"words":             "what is this\n",
		"a short sum":       line[1:],
		"upper case":        strings.ToUpper(line[:64]) + line[64:],
		"a negative number": strings.Replace(line, " 1 ", " -1 ", 1),
		"a leading zero":    strings.Replace(line, " 1 ", " 01 ", 1),
		"a path upward":     strings.Replace(line, " a\n", " ../a\n", 1),
		"an absolute path":  strings.Replace(line, " a\n", " /a\n", 1),
		"no path":           strings.Replace(line, " a\n", " \n", 1),
		"an escape":         strings.Replace(line, " a\n", ` a\x`+"\n", 1),
		"a long line":       strings.Replace(line, " a\n", " "+strings.Repeat("a", maxLineBytes)+"\n", 1),
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, Prefix), []byte(line+bad), 0o644))
		_, err := Open(dir)
		require.ErrorContains(t, err, "line 2: ", name)
	}
}

func TestOnlyOneFilterWritesToDirectory(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	_, err := Open(dir)
	require.ErrorContains(t, err, "another lsiofs filter is writing there")
	require.NoError(t, l.Close())
	require.NoError(t, opened(t, dir).Close())
}

func TestLedgerOfManyOldLinesIsRewritten(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	for i := range 100 {
		require.NoError(t, l.Add(entry("a", i), entry("b", i)))
	}
	require.NoError(t, l.Close())
	require.NoError(t, os.Mkdir(filepath.Join(dir, TempPrefix+"left"), 0o755))
	l = opened(t, dir)
	defer func() { require.NoError(t, l.Close()) }()
	text, err := os.ReadFile(filepath.Join(dir, Prefix))
	require.NoError(t, err)
	require.Equal(t, 2*maxResults, bytes.Count(text, []byte("\n")))
	e, _ := l.Get("b")
	require.Equal(t, entry("b", 99), e)
	left, err := filepath.Glob(filepath.Join(dir, TempPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Removing appends a line instead of rewriting the file: in a directory of many results, removing
// one costs one line.
func TestRemovingAppendsLine(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	require.NoError(t, l.Add(entry("a", 1), entry("b", 2)))
	before, err := os.ReadFile(filepath.Join(dir, Prefix))
	require.NoError(t, err)
	require.NoError(t, l.Remove("a", "never"))
	after, err := os.ReadFile(filepath.Join(dir, Prefix))
	require.NoError(t, err)
	zeros := strings.Repeat("0", sumDigits)
	require.Equal(t, fmt.Sprintf("%s%s %s %s 0 0 0 a\n", before, zeros, zeros, zeros), string(after))
	for range 2 {
		require.Equal(t, []string{"b"}, l.Paths())
		require.False(t, l.Made("a", entry("a", 1).Result))
		require.NoError(t, l.Close())
		l = opened(t, dir)
	}
	require.NoError(t, l.Add(entry("a", 3)))
	require.Equal(t, []string{"a", "b"}, l.Paths())
	require.NoError(t, l.Close())
}

// A process that is killed after a line leaves the previous result: that was made by a filter too,
// and the ledger records it, even after it was rewritten.
func TestPreviousResultsBelongToFilterToo(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	for range 30 {
		for i := range 6 {
			require.NoError(t, l.Add(entry("a", i)))
		}
	}
	for range 3 {
		for i := range 7 {
			require.Equal(t, i >= 2 && i < 6, l.Made("a", entry("a", i).Result), "%d", i)
		}
		require.False(t, l.Made("b", entry("a", 5).Result))
		require.NoError(t, l.Close())
		l = opened(t, dir)
	}
	require.NoError(t, l.Close())
}

// A write that fails halfway leaves no entry, and entries that are added later count.
func TestAFullDiskLeavesNoHalfLine(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	require.NoError(t, l.Add(entry("a", 1)))
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	limit := old
	limit.Cur = uint64(l.bytes) + 100
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	err := l.Add(entry("b", 1))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	require.ErrorIs(t, err, unix.EFBIG)
	_, ok := l.Get("b")
	require.False(t, ok)
	require.NoError(t, l.Add(entry("c", 1)))
	require.NoError(t, l.Close())
	l = opened(t, dir)
	require.Equal(t, []string{"a", "c"}, l.Paths())
	require.NoError(t, l.Close())
}

// An incomplete line that can't be truncated would merge with the next one: nothing is appended any
// more.
func TestUntruncatableLedgerAcceptsNoEntries(t *testing.T) {
	l := opened(t, t.TempDir())
	file := l.file
	readOnly, err := os.Open(l.path())
	require.NoError(t, err)
	l.file = readOnly
	require.Error(t, l.Add(entry("a", 1)))
	l.file = file
	require.ErrorContains(t, l.Add(entry("b", 1)), "cut the unfinished line off")
	require.Empty(t, l.Paths())
	require.NoError(t, readOnly.Close())
	require.NoError(t, l.Close())
}

func FuzzParse(f *testing.F) {
	e := entry("a b\\\n", 3)
	f.Add(e.AppendLine(nil))
	f.Add([]byte("x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, lines, whole, err := parse(text)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(entries), lines)
		require.Equal(t, lines, bytes.Count(text, []byte("\n")))
		require.True(t, whole == 0 || text[whole-1] == '\n')
		var again []byte
		for line := range bytes.Lines(text[:whole]) {
			e, err := ParseLine(line[:len(line)-1])
			require.NoError(t, err)
			again = e.AppendLine(again)
			require.True(t, strings.HasPrefix(filepath.Join("/root", e.Path), "/root/"), "a path stays below its directory")
		}
		require.Equal(t, string(text[:whole]), string(again))
	})
}

// filterIn is the environment variable that makes this program a filter of a directory, for
// TestMain.
const filterIn = "LSIOFS_TEST_FILTER_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(filterIn); dir != "" {
		if err := filterThatIsStarting(dir); err != nil {
			fmt.Print(err)
		}
		os.Exit(1) // it is killed before
	}
	os.Exit(m.Run())
}

// filterThatIsStarting opens the ledger of a directory and starts a program that has the lock's
// file open until its input ends, as each child has it between fork and exec.
func filterThatIsStarting(dir string) error {
	l, err := Open(dir)
	if err != nil {
		return err
	}
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{l.lock.file}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(child.Process.Pid)
	return child.Wait()
}

// startFilter starts another process that has a directory's ledger open, and returns it with the
// number of a program that it has started. That program ends with the test.
func startFilter(t *testing.T, dir string) (filter *exec.Cmd, child int) {
	t.Helper()
	filter = exec.Command(os.Args[0])
	filter.Env = append(os.Environ(), filterIn+"="+dir)
	input, err := filter.StdinPipe()
	require.NoError(t, err)
	output, err := filter.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, filter.Start())
	t.Cleanup(func() {
		require.NoError(t, input.Close())
		_ = filter.Process.Kill() // it may already have been killed
		_ = filter.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &child)
	require.NoError(t, err, line)
	return filter, child
}

// A filter that is killed between the fork and the exec of a program leaves a child that has the
// lock's file open.
func TestKilledFilterReleasesLockDespiteChild(t *testing.T) {
	dir := t.TempDir()
	filter, child := startFilter(t, dir)
	require.NoError(t, filter.Process.Kill())
	_, err := filter.Process.Wait()
	require.NoError(t, err)
	open, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", child))
	require.NoError(t, err, "the child lives")
	require.Equal(t, filepath.Join(dir, lockName), open)
	require.NoError(t, opened(t, dir).Close())
}

func TestRunningFilterIsNamedInLockError(t *testing.T) {
	dir := t.TempDir()
	filter, _ := startFilter(t, dir)
	for range 2 { // the first failure has opened and closed the lock's file
		_, err := Open(dir)
		require.EqualError(t, err, fmt.Sprintf("%s: another lsiofs filter is writing there (process %d): wait for it, or end it", dir, filter.Process.Pid))
	}
}

// A process that tries to open its ledger a second time keeps its lock: neither the failure nor the
// descriptors it closes let another process in.
func TestSecondLedgerInProcessKeepsLockOfFirst(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	_, err := Open(dir)
	require.ErrorIs(t, err, errHeld)
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), filterIn+"="+dir)
	said, err := other.Output()
	require.Error(t, err)
	require.Equal(t, fmt.Sprintf("%s: another lsiofs filter is writing there (process %d): wait for it, or end it", dir, os.Getpid()), string(said))
	require.NoError(t, l.Close())
	startFilter(t, dir)
}
