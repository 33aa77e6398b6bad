package listing

import (
	"fmt"
	"io"
	"os"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// maxListBytes bounds the file of --crops. A list of MaxCrops in three dimensions would have 24 GB,
// too much to hold in memory.
const maxListBytes = 4 << 30

// listPart is roughly how many times its own size reading a list takes.
const listPart = 4

// lists returns the rows of the file of --crops, for each cube.
func (f *finder) lists(cubes []*Grid) ([]*zarr.List, error) {
	file, err := os.Open(f.Spec.List)
	if err != nil {
		return nil, fmt.Errorf("--crops: %w", err)
	}
	defer file.Close()
	most := int64(maxListBytes)
	if f.MemoryBytes > 0 {
		most = min(most, f.MemoryBytes/listPart)
	}
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--crops: %w", err)
	case int64(len(b)) > most && most < maxListBytes:
		return nil, fmt.Errorf("--crops %s has more than %d bytes, and reading it would take more than half of --memory: raise --memory, use --stride and --jitter, or several mounts", f.Spec.List, most)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("--crops %s has more than %d bytes: use --stride and --jitter, or several mounts", f.Spec.List, int64(maxListBytes))
	}
	var fields []listField
	for k := range cubes[0].Fields {
		x := listField{dims: len(cubes[0].Fields[k].Array.Shape)}
		if k < len(f.Spec.Fields) {
			x.name = spec.NameOf(f.Spec.Fields[k])
		}
		fields = append(fields, x)
	}
	lists, err := parseList(b, fields, len(cubes))
	if err != nil {
		return nil, fmt.Errorf("--crops %s: %w", f.Spec.List, err)
	}
	return lists, nil
}
