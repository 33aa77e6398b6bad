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

// manual returns a page of the manual.
func manual(t *testing.T, topic string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(manualDir, topic+".md"))
	require.NoError(t, err)
	return string(b)
}

const manualDir = "../cmd/lsiofs/manual"

// specificationDirs contain pages of the manual that are next to the code that they define.
var specificationDirs = []string{"../pipeline/order", "../pipeline/format"}

// documents returns the README and all pages of the manual by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(manualDir, "*.md"))
	require.NoError(t, err)
	require.Greater(t, len(paths), 10)
	for _, dir := range specificationDirs {
		pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, pages, dir)
		paths = append(paths, pages...)
	}
	found := map[string]string{}
	for _, path := range append(paths, "../README.md") {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		found[path] = string(b)
	}
	return found
}

// blocks returns the fenced blocks of a text in a language, "" for those without one.
func blocks(text, language string) []string {
	var found []string
	for _, b := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if b[1] == language {
			found = append(found, b[2])
		}
	}
	return found
}

// TestCommandsInREADMEAndManualExist checks every call of lsiofs in them, in blocks and in
// sentences: its verb exists, and its help lists the flags.
func TestCommandsInREADMEAndManualExist(t *testing.T) {
	all := ""
	for _, text := range documents(t) {
		all += text + "\n"
	}
	text := all
	inline := regexp.MustCompile("`(lsiofs [^`]+)`").FindAllStringSubmatch(text, -1)
	lines := strings.Split(strings.Join(append(blocks(text, ""), blocks(text, "console")...), ""), "\n")
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
	require.GreaterOrEqual(t, commands, 40)
}

// TestTestsNamedInREADMEAndManualExist checks that the tests named in them exist.
func TestTestsNamedInREADMEAndManualExist(t *testing.T) {
	var all []string
	walkTree(t, func(path string, e os.DirEntry) {
		if !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "formattest") || e.IsDir() {
			return
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			all = append(all, f[1])
		}
	})
	var named [][]string
	for _, text := range documents(t) {
		named = append(named, regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllStringSubmatch(text, -1)...)
	}
	require.Greater(t, len(named), 70)
	for _, n := range named {
		require.True(t, slices.ContainsFunc(all, func(name string) bool {
			return name == n[1] || n[2] != "" && strings.HasPrefix(name, n[1])
		}), "%s%s is no test", n[1], n[2])
	}
}

// TestEachThreatNamesItsTest checks that the table of Security has no promise without a test.
func TestEachThreatNamesItsTest(t *testing.T) {
	section := manual(t, "security")
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
	if words[0] == "help" && slices.Contains(words, "…") {
		return // for any topic
	}
	if words[0] == "help" {
		require.Zero(t, tool(t, words...).code, line)
		return
	}
	if (words[0] == "checkpoint" || words[0] == "cache") && len(words) > 1 {
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

// TestProgramsInREADMERun runs the README's first programs: one that makes a mount, and a DataLoader
// on an existing mount, which has to return every member once.
func TestProgramsInREADMERun(t *testing.T) {
	interpreter := python(t, "torch")
	needFUSE(t)
	programs := blocks(readme(t), "python")
	require.Len(t, programs, 2)
	d := plain(t, "tar", 3)
	s := usual()
	s.Workers = 4
	m := mountDataset(t, d, s, "--batch", "4", "--tail", "drop")
	program := `
import os, sys, torch
os.chdir(sys.argv[2])
rank, ranks, trained, model = 0, 1, [], torch.nn.Linear(1, 1)
def decode(sample): return int(sample["__key__"] != "")
def train(batch): trained.extend(batch)
` + strings.NewReplacer("/mnt/train", m.dir, "/data/train", d.dir, "64", "4", "step % 1000", "step % 7").Replace(programs[0]+programs[1]) + `
assert size
assert len(trained) == len(data.epoch(0)) // 16 * 16 > 80 and set(map(int, trained)) == {1}, trained
data.load_state_dict(torch.load("ckpt.pt")["data"])
epoch, samples = data.position
assert epoch == 0 and samples > 0 and samples % 28 == 0, (epoch, samples)
rest = sum(len(b) for b in torch.utils.data.DataLoader(data.torch(decode), batch_size=4, num_workers=1))
assert rest == (len(data.epoch(0)) - samples) // 4 * 4, (rest, samples)
`
	script(t, interpreter, program, m.dir, t.TempDir())
}
