package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The README and each page of the manual have at most 200 lines, and prose fits into 100 columns.
func TestManualPagesAreShort(t *testing.T) {
	for path, text := range documents(t) {
		require.LessOrEqual(t, strings.Count(text, "\n"), 200, path)
		code := false
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			links := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(line, "]")
			if !code && !strings.HasPrefix(line, "|") {
				require.LessOrEqual(t, utf8.RuneCountInString(links), 100, "%s: %s", path, line)
			}
		}
	}
}

// TestLinksInREADMEAndManualWork checks that linked files and headings exist.
func TestLinksInREADMEAndManualWork(t *testing.T) {
	links := 0
	for path, text := range documents(t) {
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			links++
			if strings.HasPrefix(link[1], "https://github.com/lsiofs/lsiofs") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", path, link[1])
			if anchor != "" {
				b, err := os.ReadFile(target)
				require.NoError(t, err)
				require.Contains(t, anchors(string(b)), anchor, "%s links to %s", path, link[1])
			}
		}
	}
	require.Greater(t, links, 20)
}

// anchors returns the anchors that GitHub derives from a text's headings.
func anchors(text string) (found []string) {
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		slug := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
		found = append(found, strings.ReplaceAll(slug, " ", "-"))
	}
	return found
}

// The help also lists all pages.
func TestHelpShowsEachManualPage(t *testing.T) {
	list := string(tool(t, "help").stdout)
	for path, text := range documents(t) {
		if filepath.Base(path) == "README.md" {
			continue
		}
		topic := strings.ToLower(strings.TrimSuffix(filepath.Base(path), ".md"))
		r := tool(t, "help", topic)
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, text, string(r.stdout))
		require.Contains(t, list, "\n  "+topic+" ")
		title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		require.Contains(t, list, title)
	}
	r := tool(t, "help", "nothing-like-it")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "the pages are tree, ")
}
