package diskcache

import (
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

// Reads, streams, mappings and plans go through the cache; what describes objects is the storage's
// below.
func TestACachePassesCapabilitiesOn(t *testing.T) {
	w := newWorld(t, nil)
	want := map[string]storagetest.Passing{
		"StatStable":     storagetest.Passed,
		"Omitted":        storagetest.Passed,
		"Status":         storagetest.Passed,
		"AdjustProfile":  storagetest.Passed,
		"HeldBytes":      storagetest.Passed,
		"OpenSequential": storagetest.Own,
		"Uncached":       storagetest.Own,
		"Hints":          storagetest.Own,
	}
	if w.open(nil).Caps().Mapper != nil { // as far as the directory's file system maps files
		want["Mapper"] = storagetest.Own
	}
	storagetest.RunWrapper(t, func(t *testing.T, below storage.Storage) storage.Storage {
		return w.open(func(c *Config) { c.Below = below })
	}, want)
}
