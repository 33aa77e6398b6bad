package discover

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// refuseTwice refuses two shards that are one: the same file by two names, or one in two
// codecs, as zstd -d and gunzip -k leave it.
func (f *finder) refuseTwice(shards []Shard) error {
	directories := ofDirectories(f.Format.Name)
	if !directories {
		plain := make(map[string]string, len(shards))
		for _, s := range shards {
			name := formats.ParseName(s.Object.Path).Plain
			if before, twice := plain[name]; twice {
				return fmt.Errorf("%s holds one shard in two codecs: %s and %s: remove one of them, or leave it out with --exclude or a pattern", &f.Target, before, s.Object.Path)
			}
			plain[name] = s.Object.Path
		}
	}
	if f.Target.remote || directories || f.Format.Name == "zarr" || len(f.Format.Arrays) > 0 {
		return nil
	}
	seen := map[sameness]string{}
	for _, s := range shards {
		key := samenessOf(s.Object)
		before, maybe := seen[key]
		if maybe && f.sameFile(before, s.Object.Path) {
			return fmt.Errorf("%s holds one file by two names: %s and %s: remove one of them, or leave it out with --exclude or a pattern", &f.Target, before, s.Object.Path)
		}
		seen[key] = s.Object.Path
	}
	return nil
}

// sameness is what two names of one file have in common. Others may have it too.
type sameness struct {
	sizeBytes int64
	modTime   int64
	inode     uint64
}

func samenessOf(o storage.Object) sameness {
	return sameness{o.SizeBytes, o.Version.ModTimeNanos, o.Version.Inode}
}

// sameFile reports whether two paths below the root are of one file: device and inode.
func (f *finder) sameFile(a, b string) bool {
	x, err := os.Stat(filepath.Join(f.Target.root, a))
	if err != nil {
		return false
	}
	y, err := os.Stat(filepath.Join(f.Target.root, b))
	return err == nil && os.SameFile(x, y)
}

// sameFiles returns alike without the namings whose files are the shards by other names, as the
// blobs of a hub's cache: names say which of the two are the shards.
func (f *finder) sameFiles(files []file, d decision, alike []naming) []naming {
	if len(alike) == 0 || f.Target.remote {
		return alike
	}
	shards := map[sameness]string{}
	for i := range files {
		if d.taken[i] {
			shards[samenessOf(files[i].Object)] = files[i].Object.Path
		}
	}
	var others []naming
	for _, n := range alike {
		same := true
		for _, i := range n.files {
			o := files[i].Object
			shard, maybe := shards[samenessOf(o)]
			if same = same && maybe && f.sameFile(shard, o.Path); !same {
				break
			}
		}
		if !same {
			others = append(others, n)
			continue
		}
		for _, i := range n.files {
			d.reasons[i] = otherName
		}
	}
	return others
}
