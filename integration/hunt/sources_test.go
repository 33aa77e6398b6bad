package hunt

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// source is a kind of file system that holds a dataset.
type source struct {
	name string
	// options of a FUSE that fails on command; nil for another file system.
	options *backing.Options
	maps    bool // pages in the page cache are mapped
	mount   func(t testing.TB, d *dataset) place
}

// place is the location of a dataset.
type place struct {
	dir    string // as lsiofs sees it
	behind string // where it is changed; differs from dir if another program serves dir
	fuse   *backing.FileSystem
}

// sources lists all sources. ext4 stands for whatever file system holds temporary files.
var sources = []source{ext4, tmpfs, overlay, fuse, cachingFuse, forgetfulFuse, uncachedFuse}

var (
	ext4          = source{name: "ext4", maps: true, mount: onDisk}
	tmpfs         = source{name: "tmpfs", maps: true, mount: onTmpfs}
	overlay       = source{name: "overlay", mount: onOverlay}
	fuse          = onFuse("fuse", backing.Options{})
	cachingFuse   = onFuse("fuse that keeps attributes", backing.Options{Attributes: time.Hour, ReadOnly: true})
	uncachedFuse  = onFuse("uncached fuse", backing.Options{Uncached: true})
	forgetfulFuse = onFuse("fuse of new inodes", backing.Options{NewInodes: true})
)

func onDisk(t testing.TB, d *dataset) place {
	dir := t.TempDir()
	d.write(t, dir)
	return place{dir: dir, behind: dir}
}

// needRoot ends a test that has to mount, unless it runs as root.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		serve.Missing(t, "only root can mount file systems")
	}
}

func onTmpfs(t testing.TB, d *dataset) place {
	needRoot(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	d.write(t, dir)
	return place{dir: dir, behind: dir}
}

// onOverlay puts the dataset in the lower directory: files are copied up when they are first
// written to.
func onOverlay(t testing.TB, d *dataset) place {
	needRoot(t)
	dir, below := t.TempDir(), t.TempDir()
	lower, upper, work := filepath.Join(below, "lower"), filepath.Join(below, "upper"), filepath.Join(below, "work")
	for _, path := range []string{lower, upper, work} {
		require.NoError(t, os.Mkdir(path, 0o755))
	}
	d.write(t, lower)
	if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+",workdir="+work); err != nil {
		serve.Missing(t, "overlayfs can't be mounted: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return place{dir: dir, behind: dir}
}

func onFuse(name string, o backing.Options) source {
	return source{name: name, options: &o, mount: func(t testing.TB, d *dataset) place {
		behind := t.TempDir()
		d.write(t, behind)
		fuse := backing.Mount(t, behind, o, environment())
		return place{dir: fuse.Dir, behind: behind, fuse: fuse}
	}}
}
