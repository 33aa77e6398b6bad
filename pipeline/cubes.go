package pipeline

import (
	"path"
	"path/filepath"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes"
)

// cubesOver shows the Zarr arrays of a storage as shards of crops.
func (m *mount) cubesOver(under storage.Storage, atService bool) *cubes.Storage {
	base := path.Base(m.root)
	if abs, err := filepath.Abs(m.spec.Dataset); err == nil && !atService {
		base = filepath.Base(abs) // as it was typed: a link has a name of its own
	}
	return cubes.Over(under, cubes.Config{
		Spec: m.spec.Format.Zarr, Base: base, Seed: m.spec.Order.Seed,
		MemoryBytes:   m.spec.MemoryBytes - m.recordMemory(),
		MaxBrickBytes: m.spec.MaxRecordBytes, TrustAbsence: atService,
	})
}
