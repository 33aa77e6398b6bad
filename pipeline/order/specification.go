package order

import "embed"

// Specification has the pages that define the results of this package: ORDER.md, SELECTION.md and
// STREAMS.md. "lsiofs help order" prints the first.
//
//go:embed ORDER.md SELECTION.md STREAMS.md
var Specification embed.FS
