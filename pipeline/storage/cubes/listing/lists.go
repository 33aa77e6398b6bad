package listing

import (
	"fmt"
	"io"
	"os"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// maxListBytes bounds the file of --crops: a list of MaxCrops in three dimensions has 24 GB, which
// is no list that a person wants in memory.
const maxListBytes = 4 << 30

// lists are the rows of the file of --crops, for each cube.
func (f *finder) lists(cubes []*Cube) ([]*zarr.List, error) {
	file, err := os.Open(f.Spec.List)
	if err != nil {
		return nil, fmt.Errorf("--crops: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxListBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--crops: %w", err)
	case len(b) > maxListBytes:
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
