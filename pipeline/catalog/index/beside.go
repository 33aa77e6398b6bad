package index

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"sort"
	"time"
)

// SaveBeside stores a file next to the index, as the newest, and removes all but the newest kept
// files with the same ending (which begins with a dot). The file appears atomically, under a name
// of its own for each dataset. If the index is in memory, nothing is stored.
func (s *Store) SaveBeside(name, ending string, kept int, content []byte) error {
	if s.dir == "" {
		return nil
	}
	return s.saveBeside(name, ending, kept, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func (s *Store) saveBeside(name, ending string, kept int, write func(io.Writer) error) error {
	f, err := s.create("tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if err = write(f); err == nil {
		// A file system's own timestamp may lag by some milliseconds: it may be older than that of
		// a file which was loaded just before.
		makeNewest(f)
		err = s.publish(f, name+ending)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	s.forget(ending, kept)
	return nil
}

// LoadBeside returns a file stored by SaveBeside, and marks it as the newest. A file that does not
// have size bytes is an error; a missing one is fs.ErrNotExist.
func (s *Store) LoadBeside(name, ending string, size int64) ([]byte, error) {
	if s.dir == "" {
		return nil, fmt.Errorf("%w: %w", iofs.ErrNotExist, errNoDir)
	}
	f, err := s.openStored(s.path(name + ending))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != size {
		return nil, fmt.Errorf("%s %w: it has %d bytes, not %d", f.Name(), errDamaged, info.Size(), size)
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	makeNewest(f)
	return content, nil
}

// makeNewest sets a file's time to now. Errors do not matter: the time only determines when the
// file is removed.
func makeNewest(f *os.File) {
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now)
}

// forget removes all but the newest of the dataset's files with an ending.
func (s *Store) forget(ending string, kept int) {
	for _, path := range beyondNewest(s.files(s.name+".", ending), kept) {
		_ = os.Remove(path)
	}
}

// beyondNewest returns all but the newest of some files. Files from the future were written when
// the clock was wrong: they count as the oldest, because otherwise nothing written from now on
// would be kept.
func beyondNewest(paths []string, kept int) (others []string) {
	type aged struct {
		path string
		time time.Time
	}
	var list []aged
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			continue
		}
		a := aged{p, info.ModTime()}
		if a.time.After(time.Now()) {
			a.time = time.Time{}
		}
		list = append(list, a)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].time.After(list[j].time) })
	for _, a := range list[min(len(list), kept):] {
		others = append(others, a.path)
	}
	return others
}

const (
	// linesKept is how many fingerprints of a dataset are remembered.
	linesKept = 4
	// linesBytes bounds the lines that are read back: those of some ten million shards.
	linesBytes = 1 << 30
)

// remember stores the lines of a fingerprint for Recall. They only serve messages, so errors are
// only logged.
func (s *Store) remember(fingerprint [32]byte, lines func(io.Writer) error) {
	err := s.saveBeside(hex.EncodeToString(fingerprint[:]), ".gz", linesKept, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err == nil {
			err = lines(z)
		}
		if err == nil {
			err = z.Close()
		}
		return err
	})
	if err != nil {
		s.log.Warn("the dataset's lines are not kept: a later run can't tell how the dataset has changed", "dir", s.dir, "error", err)
	}
}

// Recall returns the lines of a fingerprint, of any dataset in the index directory, or nil. Lines
// that do not hash to the fingerprint are ignored.
func (s *Store) Recall(fingerprint string) []byte {
	want, err := hex.DecodeString(fingerprint)
	if err != nil || len(want) != sha256.Size || s.dir == "" {
		return nil
	}
	paths := s.files("", "."+hex.EncodeToString(want)+".gz")
	for _, p := range paths {
		if lines := s.readLines(p); lines != nil {
			if sum := sha256.Sum256(lines); bytes.Equal(sum[:], want) {
				return lines
			}
		}
	}
	return nil
}

func (s *Store) readLines(path string) []byte {
	f, err := s.openStored(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	lines, err := io.ReadAll(io.LimitReader(z, linesBytes))
	if err != nil {
		return nil
	}
	return lines
}
