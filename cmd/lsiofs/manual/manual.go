// Package manual holds the pages that "lsiofs help TOPIC" shows. README.md links to the same files:
// those in this directory, and the specifications, which are next to the code that they define.
package manual

import (
	"embed"
	"io/fs"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/order"
)

//go:embed *.md
var files embed.FS

// Page is one page of the manual.
type Page struct {
	Topic string // its name for "lsiofs help"
	Title string // its first line
	Text  string // Markdown, in lines of at most 100 columns except for tables
}

// topics are the pages in this directory, in the order in which a new user may need them. A page's
// file is named after its topic, with the extension .md.
var topics = []string{
	"tree", "checkpoints", "shuffle", "mixtures", "growing", "formats", "parquet", "zarr", "python", "storage", "remote", "web", "filter", "observing", "failures",
	"services", "security", "speed", "comparison", "limits",
}

// specifications are the pages from which other implementations can be written. They come last in
// the manual.
var specifications = []struct {
	topic string
	files fs.ReadFileFS
}{
	{"order", order.Specification},
	{"selection", order.Specification},
	{"streams", order.Specification},
	{"records", format.Specification},
	{"shards", format.Specification},
	{"codecs", format.Specification},
	{"tar", format.Specification},
	{"files", format.Specification},
	{"arrays", format.Specification},
	{"rows", format.Specification},
	{"tokens", format.Specification},
	{"games", format.Specification},
	{"crops", format.Specification},
	{"elements", format.Specification},
}

// Pages returns all pages.
func Pages() []Page {
	pages := make([]Page, 0, len(topics)+len(specifications))
	for _, topic := range topics {
		pages = append(pages, newPage(topic, files, topic+".md"))
	}
	for _, s := range specifications {
		pages = append(pages, newPage(s.topic, s.files, strings.ToUpper(s.topic)+".md"))
	}
	return pages
}

func newPage(topic string, files fs.ReadFileFS, name string) Page {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the files are embedded in the program
	}
	title, _, _ := strings.Cut(string(text), "\n")
	return Page{Topic: topic, Title: strings.TrimPrefix(title, "# "), Text: string(text)}
}

// Find returns the page of a topic.
func Find(topic string) (Page, bool) {
	for _, p := range Pages() {
		if p.Topic == topic {
			return p, true
		}
	}
	return Page{}, false
}
