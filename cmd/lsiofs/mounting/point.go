package mounting

import (
	"log/slog"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

// checkMountPoint refuses early, before a dataset is indexed for nothing, what
// a mount would refuse late.
func checkMountPoint(path, dataset string, log *slog.Logger) (string, error) {
	point, err := fs.PreparePoint(path, dataset, log)
	if err != nil {
		return "", exit.Errorf(exit.Mount, "%w", err)
	}
	return point, nil
}
