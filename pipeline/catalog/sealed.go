package catalog

import (
	"bytes"
	"os"
	"sort"
)

// seal writes a sealed index to the index directory, or to memory where
// inMemory says so or the directory fails, and maps it.
func (s *store) seal(content *sealing, inMemory bool) (m *mapping, stored bool, err error) {
	if s.dir != "" && !inMemory {
		if m, err = s.sealInDir(content); err == nil {
			return m, true, nil
		}
		s.log.Warn("index can't be stored: it is kept in memory and built anew by the next run; free space there or name another directory with --index-dir",
			"dir", s.dir, "error", err)
	}
	f, err := memoryFile()
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if err := content.write(f); err != nil {
		return nil, false, err
	}
	m, err = s.mapWhole(f, true)
	return m, false, err
}

func (s *store) sealInDir(content *sealing) (*mapping, error) {
	f, err := s.create("tmp")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err = content.write(f); err == nil {
		err = s.publish(f, "index")
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return nil, err
	}
	return s.mapWhole(f, false)
}

func (s *store) mapWhole(f *os.File, inMemory bool) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return s.mapFile(f, info.Size(), inMemory)
}

// find is the number of the shard with that path.
func (m *image) find(path string) (uint64, bool) {
	want := []byte(path)
	n := int(m.h.shards)
	i := sort.Search(n, func(i int) bool { return bytes.Compare(m.pathBytes(uint64(i)), want) >= 0 })
	if i == n || !bytes.Equal(m.pathBytes(uint64(i)), want) {
		return 0, false
	}
	return uint64(i), true
}

func (m *image) judged() []byte {
	return m.data[m.h.judgedAt : m.h.judgedAt+m.h.judgedBytes]
}
