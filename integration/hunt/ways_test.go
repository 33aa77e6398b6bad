package hunt

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/uring"
)

// way is a path that bytes take from shards to readers.
type way struct {
	name  string
	k     kind
	chunk int // bytes of a chunk, which is read at a time
	flags []string
	// taken reports whether a mount's figures show that its bytes took that path.
	taken func(f figures) bool
	// local means that the path needs a file system of this kernel.
	local bool
	// decodes means that shards are decoded, which makes a mixed order slow.
	decodes bool
	// cat means that there is no mount: a program writes streams to its output.
	cat bool
}

// figures are from status.json.
type figures struct {
	fetch               read.Stats
	engine              uring.Status
	goroutines, handles int
}

const (
	// smallChunk is less than what is mapped at a time (64 KiB), so it is read.
	smallChunk = 16 << 10
	largeChunk = 128 << 10
)

// little is a memory budget for a fifth of a dataset.
var little = []string{"--memory", "2MiB"}

func flags(more ...string) []string { return append(more, little...) }

// ways lists all ways.
var ways = []way{
	{name: "scan", k: tars, chunk: smallChunk, flags: flags("--read", "scan"),
		taken: func(f figures) bool {
			return f.fetch.Strategy == "scan" && f.fetch.PiecesRead > 0 && f.fetch.RecordsMapped == 0
		}},
	{name: "scan by preads", k: lines, chunk: smallChunk, flags: flags("--read", "scan", "--io", "pread"),
		taken: func(f figures) bool { return f.engine.Engine == "pread" && f.fetch.PiecesRead > 0 }},
	{name: "direct", k: long, chunk: largeChunk, flags: flags("--read", "scan", "--direct", "on"),
		taken: func(f figures) bool { return f.engine.DirectReads > 0 && f.fetch.RecordsMapped == 0 }},
	{name: "copies of mappings", k: lines, chunk: largeChunk, flags: []string{"--memory", "64MiB"}, local: true,
		taken: func(f figures) bool { return f.fetch.RecordsMapped > 0 }},
	{name: "trimmed mappings", k: tars, chunk: largeChunk, flags: flags("--read", "scan"), local: true,
		taken: func(f figures) bool { return f.fetch.RecordsMapped > 0 }},
	{name: "leased", k: long, chunk: largeChunk, flags: []string{"--memory", "64MiB"}, local: true,
		taken: func(f figures) bool {
			return f.fetch.RecordsMapped > 0 && f.fetch.Leases.Held+len(f.fetch.Leases.Refused) > 0
		}},
	{name: "checksums of records", k: frames, chunk: largeChunk, flags: []string{"--memory", "64MiB"},
		taken: func(f figures) bool { return f.fetch.RecordsMapped > 0 || f.engine.RemoteReads > 0 }},
	{name: "gather", k: tars, chunk: largeChunk, flags: flags("--read", "gather"),
		taken: func(f figures) bool { return f.fetch.Gather != nil && f.fetch.Gather.Reads > 0 }},
	{name: "gather by preads", k: arrays, chunk: largeChunk, flags: flags("--read", "gather", "--io", "pread"),
		taken: func(f figures) bool {
			return f.fetch.Gather != nil && f.fetch.Gather.Reads > 0 && f.engine.Engine == "pread"
		}},
	{name: "spool", k: linesGz, decodes: true, chunk: largeChunk, flags: flags("--read", "spool"),
		taken: func(f figures) bool { return f.fetch.Spool != nil && f.fetch.Spool.Decoded > 0 }},
	decoded("gzip", linesGz), decoded("gzip members", linesGzs), decoded("zstd", tarsZst), decoded("zstd frames", tarsZsts),
	decoded("lz4", linesLz4), decoded("lz4 frames", tarsLz4s), decoded("games", games),
	{name: "files", k: folders, chunk: largeChunk, flags: flags(),
		taken: func(f figures) bool { return f.engine.Reads > 0 }},
	{name: "arrays", k: arrays, chunk: largeChunk, flags: []string{"--memory", "64MiB"},
		taken: func(f figures) bool { return f.fetch.RecordsMapped > 0 || f.engine.RemoteReads > 0 }},
	{name: "cat", k: lines, chunk: largeChunk, flags: flags(), cat: true},
	{name: "cat of gzip", k: linesGz, chunk: largeChunk, flags: flags("--read", "scan"), cat: true},
}

// decoded returns a way that decodes in memory.
func decoded(name string, k kind) way {
	// For shards of one member, any budget that does not hold all of them is too small for a mixed
	// order: they are decoded again and again. With this one it still makes progress.
	return way{name: name, k: k, decodes: true, chunk: largeChunk, flags: []string{"--read", "scan", "--memory", "8MiB"},
		taken: func(f figures) bool { return f.fetch.Strategy == "scan" && f.fetch.DecodedBytes > 0 }}
}

// figuresOf reads status.json.
func figuresOf(path string) (f figures, err error) {
	var s struct {
		Pipeline struct {
			Fetch  read.Stats   `json:"fetch"`
			Engine uring.Status `json:"engine"`
		} `json:"pipeline"`
		Process struct {
			Goroutines int `json:"goroutines"`
		} `json:"process"`
		Traffic struct {
			OpenHandles int `json:"open_handles"`
		} `json:"traffic"`
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return f, fmt.Errorf("status.json: %w", err)
	}
	return figures{s.Pipeline.Fetch, s.Pipeline.Engine, s.Process.Goroutines, s.Traffic.OpenHandles}, nil
}
