package zarr

import (
	"fmt"
	"strings"
)

// Limits of documents and arrays. What is beyond one is refused.
const (
	// MaxDocumentBytes bounds a metadata document. Consolidated ones of large hierarchies
	// have a few MiB.
	MaxDocumentBytes = 16 << 20
	// MaxDepth bounds how deep a document is nested.
	MaxDepth = 64
	// MaxDims bounds the dimensions of an array. NumPy 1 has the same limit.
	MaxDims = 32
	// MaxEdge bounds each edge of an array, brick and object. Products of two such numbers
	// fit into 96 bits.
	MaxEdge = 1 << 48
	// MaxItemBytes bounds an element.
	MaxItemBytes = 1 << 20
	// MaxBrickBytes bounds a decoded brick. What a mount may hold is far less, and is
	// checked there.
	MaxBrickBytes = 1 << 40
	// MaxObjects bounds the objects of an array, and the bricks of it.
	MaxObjects = 1 << 60
	// MaxIndexEntries bounds the bricks of an object of a sharded array, those of shards in it
	// included; its index then has 256 MiB.
	MaxIndexEntries = 1 << 24
	// MaxLevels bounds how deep sharding is nested.
	MaxLevels = 4
	// maxCodecs bounds a chain of codecs.
	maxCodecs = 16
)

// Problem is one thing that is wrong with a document, or that is not supported.
type Problem struct {
	// Member is where: "codecs[1].configuration.order". It is empty if the document as a
	// whole is wrong.
	Member string
	// Text says what is wrong and what to do.
	Text string
}

// Error is all that is wrong with a document.
type Error struct {
	// Document is the path that was given to the function that parsed it.
	Document string
	// Problems has at least one entry.
	Problems []Problem
}

// Error lists all problems on one line.
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

// add notes a problem. A document with very many is cut short.
func (p *problems) add(member, format string, args ...any) {
	const enough = 20
	if len(p.list) < enough {
		p.list = append(p.list, Problem{shortened(member), shortened(fmt.Sprintf(format, args...))})
	}
}

// shortened cuts what has a long text of a document in it: its end, which says what to do, stays.
func shortened(s string) string {
	const begin, end = 200, 150
	if len(s) <= begin+end {
		return s
	}
	return strings.ToValidUTF8(s[:begin], "") + " … " + strings.ToValidUTF8(s[len(s)-end:], "")
}

// err is nil if there was no problem.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &Error{p.document, p.list}
}
