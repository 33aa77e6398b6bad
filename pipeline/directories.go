package pipeline

import (
	"encoding/hex"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Bounds of the directories that dataset.json lists.
const (
	maxDirectories     = 1 << 16
	maxDirectoriesPath = 16 << 20 // total bytes of their paths
)

// directory is a shard of a dataset of single files, in dataset.json.
type directory struct {
	Path string `json:"path"` // relative to the root, "." for the root itself
	// Hex is the bytes of a path that is not valid UTF-8, which JSON can't hold.
	Hex     string `json:"path_hex,omitempty"`
	Records uint64 `json:"records"` // before a split
}

// directories lists the shards of a dataset whose shards are directories, in dataset order. Readers
// that can't list the dataset itself make labels from them. For other datasets the list is empty.
// If there are too many to list, omitted is their number.
func (g *generation) directories() (list []directory, omitted int) {
	c := g.catalog
	if _, ok := c.Unpacker().(format.Foldered); !ok {
		return nil, 0
	}
	return listDirectories(c.Shards(), func(i int) (string, uint64) {
		s := c.Shard(i)
		return s.Object.Path, s.Records
	})
}

func listDirectories(n int, at func(i int) (path string, records uint64)) (list []directory, omitted int) {
	if n > maxDirectories {
		return nil, n
	}
	list = make([]directory, n)
	bytes := 0
	for i := range list {
		path, records := at(i)
		list[i] = directory{Path: path, Records: records}
		if !utf8.ValidString(path) {
			list[i].Hex = hex.EncodeToString([]byte(path))
		}
		if bytes += len(path); bytes > maxDirectoriesPath {
			return nil, n
		}
	}
	return list, 0
}
