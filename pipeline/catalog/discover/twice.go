package discover

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// refuseTwice refuses two shards that are one.
func (f *finder) refuseTwice(shards []Shard) error {
	if ofDirectories(f.Format.Name) {
		return nil
	}
	root := f.Target.root
	if f.Target.remote || f.Format.Name == "zarr" || len(f.Format.Arrays) > 0 {
		root = ""
	}
	once := NewOnce(root)
	for _, s := range shards {
		before := once.Twin(s.Object)
		switch {
		case before == "":
			once.Add(s.Object)
			continue
		case otherCodec(before, s.Object.Path):
			return fmt.Errorf("%s holds one shard in two codecs: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
		}
		return fmt.Errorf("%s holds one file by two names: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
	}
	return nil
}

const oneOfThem = ": remove one of them, or leave it out with --exclude or a pattern"

// Once finds shards that are one: the same file by two names, or one in two codecs, as zstd -d and
// gunzip -k leave it. It is not safe for concurrent use.
type Once struct {
	root  string
	plain map[string]string   // paths, by the name without a codec
	files map[sameness]string // likewise
}

// NewOnce is empty. root is the directory that paths are relative to; "" where files have names
// only.
func NewOnce(root string) *Once {
	return &Once{root, map[string]string{}, map[sameness]string{}}
}

// Twin returns the path of a shard that was added and is o by another name or in another codec, ""
// where there is none.
func (x *Once) Twin(o storage.Object) string {
	if path := x.plain[formats.ParseName(o.Path).Plain]; path != "" && path != o.Path {
		return path
	}
	if path := x.files[samenessOf(o)]; x.root != "" && path != "" && path != o.Path && sameFile(x.root, path, o.Path) {
		return path
	}
	return ""
}

// Add takes in a shard that has no twin.
func (x *Once) Add(o storage.Object) {
	x.plain[formats.ParseName(o.Path).Plain] = o.Path
	if x.root != "" {
		x.files[samenessOf(o)] = o.Path
	}
}

// Remove takes out a shard that was added.
func (x *Once) Remove(o storage.Object) {
	if plain := formats.ParseName(o.Path).Plain; x.plain[plain] == o.Path {
		delete(x.plain, plain)
	}
	if key := samenessOf(o); x.files[key] == o.Path {
		delete(x.files, key)
	}
}

// Still reports whether two paths that were twins are so now: both are there, and differ in the
// codec alone or are of one file.
func (x *Once) Still(a, b string) bool {
	if !otherCodec(a, b) {
		return sameFile(x.root, a, b)
	}
	_, err := os.Stat(filepath.Join(x.root, a))
	return err == nil
}

// TwiceReason is why a shard does not count that another one is, too.
func TwiceReason(path, twin string) string {
	if otherCodec(path, twin) {
		return "it is " + twin + " in another codec" + oneOfThem
	}
	return "it is " + twin + " by another name" + oneOfThem
}

// otherCodec reports whether two names differ in the codec alone.
func otherCodec(a, b string) bool { return formats.ParseName(a).Plain == formats.ParseName(b).Plain }

// sameness is what two names of one file have in common. Others may have it too.
type sameness struct {
	sizeBytes int64
	modTime   int64
	inode     uint64
}

func samenessOf(o storage.Object) sameness {
	return sameness{o.SizeBytes, o.Version.ModTimeNanos, o.Version.Inode}
}

// sameFile reports whether two paths below root are of one file: device and inode.
func sameFile(root, a, b string) bool {
	x, err := os.Stat(filepath.Join(root, a))
	if err != nil {
		return false
	}
	y, err := os.Stat(filepath.Join(root, b))
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
			if same = same && maybe && sameFile(f.Target.root, shard, o.Path); !same {
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
