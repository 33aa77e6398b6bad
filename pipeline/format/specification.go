package format

import "embed"

// Specification has the pages that define shards and records, of all formats. RECORDS.md is the
// first: "lsiofs help records" prints it.
//
//go:embed RECORDS.md SHARDS.md CODECS.md TAR.md FILES.md ARRAYS.md GAMES.md CROPS.md ELEMENTS.md
var Specification embed.FS
