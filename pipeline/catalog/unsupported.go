package catalog

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// errUnsupported is the error for a listing whose files are for the most part of a
// format that is not supported yet, nil where they are not. Files that are shards by
// their extension are no part of it: shards are what was taken for one by its content,
// or for want of others, such as the README or the index that lie beside the data.
func (t *table) errUnsupported(where string, all, shards []candidate) error {
	taken := make(map[string]bool, len(shards))
	var shardBytes int64
	for _, c := range shards {
		if f := t.byExtension(c.inner); f != nil && f.Name() != "lines" {
			return nil
		}
		taken[c.object.Path] = true
		shardBytes += c.object.SizeBytes
	}
	type held struct {
		format    spec.Unsupported
		first     string
		count     int
		sizeBytes int64
	}
	byName := map[string]*held{}
	most := &held{}
	for _, c := range all {
		u, is := spec.UnsupportedFile(c.object.Path)
		if !is || taken[c.object.Path] {
			continue
		}
		h := byName[u.Name]
		if h == nil {
			h = &held{format: u, first: c.object.Path}
			byName[u.Name] = h
		}
		h.count++
		h.sizeBytes += c.object.SizeBytes
		if most.count == 0 || h.sizeBytes > most.sizeBytes {
			most = h
		}
	}
	if most.count == 0 || len(shards) > 0 && most.sizeBytes <= shardBytes {
		return nil
	}
	return fmt.Errorf("%s holds no shards, and %s of %s (%s …), which is not supported yet: %s",
		where, files(most.count), most.format.Title, most.first, most.format.Convert())
}
