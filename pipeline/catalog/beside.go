package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"time"
)

// Identity tells this index from every other, also of the same dataset: two
// catalogs with the same one give the same answers to everything.
func (c *Catalog) Identity() string {
	sum := sha256.Sum256(c.image.data[:imageHeaderBytes])
	return hex.EncodeToString(sum[:])
}

// SaveBeside stores a file beside the index, and removes all but the newest kept
// of those with the same ending (which begins with a dot). The file appears
// whole, under a name of its own for each dataset. Where the index is in memory
// nothing is stored.
func (c *Catalog) SaveBeside(name, ending string, kept int, content []byte) error {
	s := c.store
	if s.dir == "" {
		return nil
	}
	f, err := s.create("tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Write(content); err == nil {
		err = s.publish(f, name+ending)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	s.forget(ending, kept)
	return nil
}

// LoadBeside gives a file that SaveBeside has stored, and makes it the newest.
// One that does not have size bytes is an error; one that is not there is
// fs.ErrNotExist.
func (c *Catalog) LoadBeside(name, ending string, size int64) ([]byte, error) {
	s := c.store
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
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now) // only its turn to be removed depends on it
	return content, nil
}
