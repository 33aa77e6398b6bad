package doctor

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/cache"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// room is the disk cache's directory and its contents.
type room struct {
	dir       string
	asked     bool // the user named it
	freeBytes int64
	// reserveBytes of the file system stay free, unless --cache-reserve is set.
	reserveBytes int64
	place        filesystem.Place
	err          error

	refused error // why a mount would not use the directory
	exists  bool
	kept    kept // of all datasets
	of      kept // of the dataset given by the user
	dataset string
}

// kept counts what a cache holds of some objects.
type kept struct {
	objects, damaged, inUse int
	hereBytes, sizeBytes    int64
}

func (k *kept) add(e diskcache.Entry) {
	k.objects++
	k.hereBytes += min(e.HereBytes, e.SizeBytes)
	k.sizeBytes += e.SizeBytes
	if e.Damaged != "" {
		k.damaged++
	}
	if e.InUse {
		k.inUse++
	}
}

// lookAtCache examines the directory that a disk cache is in, or would be created in: dir, or the
// user's default if it is "". It also examines what the cache holds of a dataset ("" for none). It
// creates nothing.
func lookAtCache(ctx context.Context, dir, dataset string) room {
	r := room{asked: dir != ""}
	if r.dir, r.err = pipeline.CacheDirectory(dir); r.err != nil {
		return r
	}
	at := r.dir // or its nearest parent that exists
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	var fs unix.Statfs_t
	if r.err = unix.Statfs(at, &fs); r.err == nil {
		r.freeBytes, r.reserveBytes = int64(fs.Bavail)*fs.Bsize, diskcache.Reserve(int64(fs.Blocks)*fs.Bsize)
		r.place, r.err = filesystem.Look(at)
	}
	if r.err != nil {
		return r
	}
	if r.dataset = dataset; at == r.dir {
		r.exists = true
		r.refused = r.lookInside(ctx)
	}
	return r
}

// lookInside counts what is kept. Its error is the reason why there can be no cache.
func (r *room) lookInside(ctx context.Context) error {
	info, err := os.Lstat(r.dir)
	if err != nil {
		return err
	}
	if names, err := os.ReadDir(r.dir); err == nil && len(names) == 0 {
		// Opening an empty directory would make it a cache.
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != uint32(os.Geteuid()) {
			return fmt.Errorf("%s belongs to user %d, not to you (%d)", r.dir, st.Uid, os.Geteuid())
		}
		if info.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("%s: other users can access it (mode %04o): chmod 700", r.dir, info.Mode().Perm())
		}
		return nil
	}
	d, err := diskcache.OpenDirectory(r.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	is := objectsOf(r.dataset)
	err = d.List(ctx, func(e diskcache.Entry) error {
		r.kept.add(e)
		if r.dataset != "" && is(e.URL) {
			r.of.add(e)
		}
		return nil
	})
	return errors.Join(err, d.Close())
}

// objectsOf returns a function that reports whether a URL may be one of the dataset's objects: one
// that begins like the dataset up to its first pattern, one in the folder of a list of shards, or
// the dataset's own and those below it.
func objectsOf(dataset string) func(url string) bool {
	of := cache.Canonical(dataset)
	if i := strings.IndexAny(of, "*?[{"); i >= 0 {
		return func(url string) bool { return strings.HasPrefix(url, of[:i]) }
	}
	if ext := path.Ext(of); ext == ".txt" || ext == ".json" {
		of = of[:strings.LastIndexByte(of, '/')]
	}
	return func(url string) bool { return url == of || strings.HasPrefix(url, of+"/") }
}

// littleRoom is the free space below which a disk cache is worth little.
const littleRoom = 4 << 30

func checkRoom(r room) Finding {
	found := Finding{Check: "disk cache", Level: levelOK}
	if r.err != nil {
		found.Level, found.Detail, found.Do = levelWarn, r.err.Error(), "name a directory on a local disk with --cache-dir, or set XDG_CACHE_HOME"
		return found
	}
	if r.refused != nil {
		found.Level, found.Detail = levelWarn, r.refused.Error()+"; nothing is kept there"
		if r.asked {
			found.Level = levelFail // a mount that is configured to use it fails
		}
		found.Do = "name another directory with --cache-dir, or fix this one"
		if errors.Is(r.refused, iofs.ErrPermission) {
			found.Do = "run as the user who owns it, or name another directory with --cache-dir"
		}
		return found
	}
	down := diskcache.DownToReserve(r.freeBytes, r.reserveBytes, 0)
	found.Detail = fmt.Sprintf("%s free at %s (%s)%s", terminal.Bytes(r.freeBytes), r.dir, r.place.FileSystem, r.contents())
	switch {
	case r.place.Kind == storage.KindNetwork:
		found.Level, found.Do = levelWarn, "put it on a local disk (--cache-dir): this directory is on a network file system"
	case r.place.Kind == storage.KindMemory:
		found.Level, found.Do = levelWarn, "put it on a disk (--cache-dir): this directory is in memory"
	case r.kept.damaged > 0:
		found.Level, found.Do = levelWarn, "lsiofs cache verify --repair drops the damaged pages; they are fetched again when read"
	case down != "":
		found.Level, found.Do = levelWarn, "nothing more is kept: "+down
	case r.freeBytes < littleRoom:
		found.Level, found.Do = levelWarn, "free space, or put it on a larger disk (--cache-dir)"
	}
	return found
}

// contents describes what the directory holds.
func (r *room) contents() string {
	if !r.exists {
		return "; it is created when needed"
	}
	text := fmt.Sprintf("; only you can access it; it holds %s of %s", terminal.Bytes(r.kept.hereBytes), terminal.Plural(uint64(r.kept.objects), "object"))
	if r.kept.damaged > 0 {
		text += fmt.Sprintf(", %d of them damaged", r.kept.damaged)
	}
	if r.kept.inUse > 0 {
		text += fmt.Sprintf(", %d in use by mounts", r.kept.inUse)
	}
	if r.dataset != "" {
		text += fmt.Sprintf("; for this dataset it holds %s of the %s it knows of", terminal.Bytes(r.of.hereBytes), terminal.Bytes(r.of.sizeBytes))
	}
	return text
}
