// Package manual holds the pages that "lsiofs help TOPIC" shows. README.md links to the
// same files, in this directory.
package manual

import (
	"embed"
	"strings"
)

//go:embed *.md
var files embed.FS

// Page is one page of the manual.
type Page struct {
	Topic string // what "lsiofs help" calls it, and its file's name without .md
	Title string // its first line
	Text  string // Markdown, lines of 100 columns at most but for tables
}

// topics are the pages in the order in which a new user may want them.
var topics = []string{
	"tree", "checkpoints", "shuffle", "mixtures", "growing", "formats", "zarr", "python", "storage", "remote", "web", "filter", "observing", "failures",
	"services", "security", "speed", "comparison", "limits",
}

// Pages gives all pages.
func Pages() []Page {
	pages := make([]Page, len(topics))
	for i, topic := range topics {
		text, err := files.ReadFile(topic + ".md")
		if err != nil {
			panic(err) // the files are part of the program
		}
		title, _, _ := strings.Cut(string(text), "\n")
		pages[i] = Page{Topic: topic, Title: strings.TrimPrefix(title, "# "), Text: string(text)}
	}
	return pages
}

// Find gives the page of a topic.
func Find(topic string) (Page, bool) {
	for _, p := range Pages() {
		if p.Topic == topic {
			return p, true
		}
	}
	return Page{}, false
}
