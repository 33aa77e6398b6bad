package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	return string(b)
}

// blocks are the fenced blocks of a text in a language, "" for those without.
func blocks(text, language string) []string {
	var found []string
	for _, b := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if b[1] == language {
			found = append(found, b[2])
		}
	}
	return found
}

// TestREADMEsCommandsExist looks at every call of lsiofs in the README, in
// blocks and in sentences: its verb exists, and its help knows the flags.
func TestREADMEsCommandsExist(t *testing.T) {
	text := readme(t)
	inline := regexp.MustCompile("`(lsiofs [^`]+)`").FindAllStringSubmatch(text, -1)
	lines := strings.Split(strings.Join(blocks(text, ""), ""), "\n")
	for _, code := range inline {
		lines = append(lines, code[1])
	}
	commands := 0
	for _, line := range lines {
		for _, part := range regexp.MustCompile(`[|;&]+`).Split(line, -1) {
			part, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(part), "$ "), " #")
			if words := strings.Fields(part); len(words) > 1 && words[0] == "lsiofs" {
				requireExists(t, words[1:], line)
				commands++
			}
		}
	}
	require.GreaterOrEqual(t, commands, 10)
}

// TestREADMEsTestsExist: what the README says is shown by a test is shown by one
// that is there. Names that end with … are beginnings of names.
func TestREADMEsTestsExist(t *testing.T) {
	var all []string
	require.NoError(t, filepath.WalkDir("..", func(path string, e os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "unpacktest") || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			all = append(all, f[1])
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllStringSubmatch(readme(t), -1)
	require.Greater(t, len(named), 30)
	for _, n := range named {
		require.True(t, slices.ContainsFunc(all, func(name string) bool {
			return name == n[1] || n[2] != "" && strings.HasPrefix(name, n[1])
		}), "%s%s is no test", n[1], n[2])
	}
}

// TestEachThreatNamesItsTest: the table of Security has no empty promise.
func TestEachThreatNamesItsTest(t *testing.T) {
	_, section, found := strings.Cut(readme(t), "\n## Security\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| (.*) \|$`).FindAllStringSubmatch(section, -1)
	require.Greater(t, len(rows), 12)
	for _, row := range rows[1:] {
		columns := strings.Split(row[1], " | ")
		require.Len(t, columns, 3, row[1])
		require.Regexp(t, "`(Test|Fuzz)", columns[2], row[1])
	}
	require.Contains(t, section, "security/advisories/new")
}

func requireExists(t *testing.T, words []string, line string) {
	t.Helper()
	verb := words[:1]
	if words[0] == "checkpoint" && len(words) > 1 {
		verb = words[:2]
	}
	if strings.HasPrefix(verb[0], "-") {
		verb = nil
	}
	help := tool(t, append(append([]string{}, verb...), "--help")...)
	require.Zero(t, help.code, line)
	text := string(help.stdout) + help.stderr
	if len(verb) > 0 {
		require.Contains(t, text, "lsiofs "+strings.Join(verb, " "), "%s", line)
	}
	for _, word := range words {
		if strings.HasPrefix(word, "--") {
			name, _, _ := strings.Cut(word, "=")
			require.Contains(t, text, name, "%s", line)
		}
	}
}

// TestREADMEsProgramsRun runs the README's first programs: one that makes a mount, and
// a DataLoader on a mount that is there, which has to give every member once.
func TestREADMEsProgramsRun(t *testing.T) {
	interpreter := python(t, "torch")
	needFUSE(t)
	programs := blocks(readme(t), "python")
	require.GreaterOrEqual(t, len(programs), 3)
	d := plain(t, "tar", 3)
	s := usual()
	s.Workers = 4
	m := mountDataset(t, d, s)
	program := strings.NewReplacer("/mnt/train", m.dir, "/data/train", d.dir).Replace("import torch\n"+programs[0]+programs[1]) + `
import hashlib, tarfile
assert size
got = sorted((s["__key__"].decode() + "." + extension, hashlib.sha256(s[extension]).hexdigest()) for batch in loader for s in batch for extension in s if extension != "__key__")
want = []
for w in range(4):
    with tarfile.open(f"{sys.argv[1]}/epoch-0/worker-{w}-of-4.tar") as stream:
        want += [(m.name, hashlib.sha256(stream.extractfile(m).read()).hexdigest()) for m in stream if m.isfile() and not m.name.startswith("__") and "." in m.name.split("/")[-1][1:]]
assert len(want) > 100 and got == sorted(want), (len(got), len(want))
`
	script(t, interpreter, "import sys\n"+program, m.dir)
}
