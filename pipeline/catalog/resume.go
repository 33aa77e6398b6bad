package catalog

import (
	"os"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// journals are those of interrupted builds: of processes that live no more.
type journals struct {
	files []*os.File
	maps  []*mapping
	found map[string]packed
}

// openJournals reads the abandoned journals of a dataset. Where ignore is set
// their entries are not used, and they are only there to be removed.
func openJournals(s *store, head []byte, policy spec.OnCorrupt, ignore bool) *journals {
	j := &journals{files: s.abandoned(".journal"), found: map[string]packed{}}
	if ignore {
		return j
	}
	for _, f := range j.files {
		m, err := s.mapWhole(f, false)
		if err != nil {
			continue
		}
		j.maps = append(j.maps, m)
		entries, err := readJournal(m.data, head)
		if err != nil {
			continue // of another version or format
		}
		for _, p := range entries {
			if reusable(p.blob, policy) {
				j.found[p.object.Path] = p
			}
		}
	}
	return j
}

// reuse fills in shards that a journal has as they are now, and gives the
// numbers of those that are still to do.
func (j *journals) reuse(shards []candidate, sealed []packed, todo []int) []int {
	if len(j.found) == 0 {
		return todo
	}
	left := todo[:0]
	for _, i := range todo {
		if p, ok := j.found[shards[i].object.Path]; ok && p.object == shards[i].object && p.codec == shards[i].codec {
			sealed[i] = p
			continue
		}
		left = append(left, i)
	}
	return left
}

// remove removes the journals, whose entries are sealed now.
func (j *journals) remove() {
	for _, f := range j.files {
		_ = os.Remove(f.Name())
	}
}

// close unmaps and unlocks: no blob may be used afterwards.
func (j *journals) close() {
	for _, m := range j.maps {
		_ = m.Close()
	}
	for _, f := range j.files {
		_ = f.Close()
	}
}
