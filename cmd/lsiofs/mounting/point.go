package mounting

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// preparePoint refuses early what checkMountPoint refuses, and mounts that this process may not
// make.
func preparePoint(ctx context.Context, o *Config, s spec.Spec) (string, error) {
	point, err := checkMountPoint(ctx, o, s)
	if err != nil {
		return "", err
	}
	return point, exit.With(exit.Mount, fs.MayMount(point, o.AllowOther))
}

// checkMountPoint refuses early, before a dataset is indexed in vain, what a mount would refuse
// late. It also refuses a point that would hide what the mount itself writes. Nothing has been
// created by then.
func checkMountPoint(ctx context.Context, o *Config, s spec.Spec) (string, error) {
	datasets := []string{o.Dataset}
	if o.Sources != nil {
		datasets = nil
		for _, s := range o.Sources {
			datasets = append(datasets, s.Dataset)
		}
	}
	point, err := fs.PreparePoint(ctx, o.Point, datasets, o.Log)
	if err != nil {
		return "", exit.With(exit.Mount, err)
	}
	// If there is no directory of one's own, a later message reports it when it is needed.
	index, _, _ := catalog.DirectoryFor(s.IndexDir, "")
	cache, _ := pipeline.CacheDirectory(s.Cache.Dir)
	for _, w := range []struct{ flag, path string }{{"--index-dir", index}, {"--cache-dir", cache}, {"--spool-dir", s.SpoolDir}, {"--run", s.Grow.Run}} {
		if err := outside(point, w.flag, w.path); err != nil {
			return "", exit.With(exit.Mount, err)
		}
	}
	return point, nil
}

// outside refuses a path inside the mount point.
func outside(point, flag, path string) error {
	if path == "" {
		return nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if inside(existing(abs), point) {
		return fmt.Errorf("mount point %s would hide %s, which the mount uses: choose a place outside of it with %s", point, path, flag)
	}
	return nil
}

// existing returns an absolute path with symbolic links resolved in the part of it that exists.
func existing(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || path == "/" {
		return real
	}
	return filepath.Join(existing(filepath.Dir(path)), filepath.Base(path))
}
