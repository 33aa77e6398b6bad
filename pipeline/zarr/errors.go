package zarr

import (
	"fmt"
	"strings"
)

// Limits of documents and arrays. Anything beyond a limit is refused.
const (
	// MaxDocumentBytes bounds a metadata document. Consolidated metadata of large hierarchies has a
	// few MiB.
	MaxDocumentBytes = 16 << 20
	// MaxDepth bounds the nesting of a document.
	MaxDepth = 64
	// MaxDims bounds the dimensions of an array. NumPy 1 has the same limit.
	MaxDims = 32
	// MaxEdge bounds each edge of an array, chunk and object. The product of two such numbers fits
	// in 96 bits.
	MaxEdge = 1 << 48
	// MaxItemBytes bounds an element.
	MaxItemBytes = 1 << 20
	// MaxChunkBytes bounds a decoded chunk. A mount's own bound is much lower, and is checked
	// there.
	MaxChunkBytes = 1 << 40
	// MaxObjects bounds the objects of an array, and its chunks.
	MaxObjects = 1 << 60
	// MaxIndexEntries bounds the chunks of an object of a sharded array, including those of nested
	// shards; an index of that many takes 256 MiB.
	MaxIndexEntries = 1 << 24
	// MaxLevels bounds the nesting of sharding.
	MaxLevels = 4
	// maxCodecs bounds a chain of codecs.
	maxCodecs = 16
)

// Problem is one thing about a document that is wrong or not supported.
type Problem struct {
	// Member is the location, such as "codecs[1].configuration.order". It is empty if the document
	// as a whole is wrong.
	Member string
	// Text is what is wrong and what to do.
	Text string
}

// Error lists everything that is wrong with a document.
type Error struct {
	// Document is the path that was passed to the parser.
	Document string
	// Problems has at least one entry.
	Problems []Problem
}

// Error returns all problems on one line.
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Text
		if p.Member != "" {
			texts[i] = p.Member + ": " + p.Text
		}
	}
	return "zarr: " + e.Document + ": " + strings.Join(texts, "; ")
}

// problems collects what is wrong with a document.
type problems struct {
	document string
	list     []Problem
}

// add adds a problem. After the first 20 further ones are dropped.
func (p *problems) add(member, format string, args ...any) {
	const enough = 20
	if len(p.list) < enough {
		p.list = append(p.list, Problem{shortened(member), shortened(fmt.Sprintf(format, args...))})
	}
}

// shortened shortens a message that quotes a long text from a document. The end, which has the
// advice, stays.
func shortened(s string) string {
	const begin, end = 200, 150
	if len(s) <= begin+end {
		return s
	}
	return strings.ToValidUTF8(s[:begin], "") + " … " + strings.ToValidUTF8(s[len(s)-end:], "")
}

// err returns an *Error, or nil if there was no problem.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &Error{p.document, p.list}
}
