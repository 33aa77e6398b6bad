package tar_test

import (
	"strings"
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/format/files"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
)

// TestFilesSuite is in this package because it uses the naive parser of archives.
func TestFilesSuite(t *testing.T) {
	formattest.Suite{Format: files.Format{}, Shards: filesShards(), Naive: naiveFiles, Draw: draw, EndsAnywhere: true}.Run(t)
}

// filesShards returns directories as storage presents them, and archives that are not directories.
func filesShards() []formattest.Shard {
	directory := func(contents ...string) []byte {
		var shard []byte
		for i := 0; i < len(contents); i += 2 {
			shard = files.Framing{}.AppendHeader(shard, []byte(contents[i]), int64(len(contents[i+1])))
			shard = append(shard, contents[i+1]...)
			shard = append(shard, make([]byte, -len(contents[i+1])&511)...)
		}
		return shard
	}
	long := strings.Repeat("long/", 50)
	var links archive
	return append(shards(),
		formattest.Shard{Name: "files with one key and files without", Bytes: directory(
			"d/LICENSE", "free", "d/README", "", "d/a.cls", "1", "d/a.seg.png", "png", "d/b.", "", "d/b.jpg", strings.Repeat("2", 600))},
		formattest.Shard{Name: "long paths", Bytes: directory(long+"a.cls", "1", long+"a.jpg", "jpg", long+"b", "", long+"c", "")},
		formattest.Shard{Name: "names that tar passes over", Bytes: directory("__meta__/a.x", "", "__meta__/a.y", "1", "__meta__/b", "2")},
		formattest.Shard{Name: "links between files", Bytes: links.file("a.x", "1").add(header('2', "a.y", 0), "").file("a.z", "2").end()},
	)
}
