package mounting

import (
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

// checkMountPoint refuses early, before a dataset is indexed for nothing, what
// a mount would refuse late.
func checkMountPoint(o *Config) (string, error) {
	datasets := []string{o.Dataset}
	if o.Sources != nil {
		datasets = nil
		for _, s := range o.Sources {
			datasets = append(datasets, s.Dataset)
		}
	}
	point, err := fs.PreparePoint(o.Point, datasets, o.Log)
	if err != nil {
		return "", exit.Errorf(exit.Mount, "%w", err)
	}
	return point, nil
}
