package discover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// refuseTwice refuses two files that are the same shard.
func (f *finder) refuseTwice(shards []Shard) error {
	parts := f.Storage.Caps().Parts
	ofParts := parts != nil
	if formats.OfDirectories(f.Format.Name) && !ofParts { // their storage has compared them
		return nil
	}
	root := f.Target.root
	if f.Target.remote || len(f.Format.Arrays) > 0 {
		root = ""
	}
	once := NewOnce(root)
	once.parts = parts
	for _, s := range shards {
		before := once.Twin(s.Object)
		switch {
		case before == "":
			once.Add(s.Object)
			continue
		case ofParts:
			return fmt.Errorf("%s holds the same arrays by two names: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
		case otherCodec(before, s.Object.Path):
			return fmt.Errorf("%s holds one shard in two codecs: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
		}
		return fmt.Errorf("%s holds one file by two names: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
	}
	return nil
}

const oneOfThem = ": remove one of them, or leave it out with --exclude or a pattern"

// Once finds files that are the same shard: one file under two names, or a file in two codecs, such
// as zstd -d and gunzip -k leave. It is not safe for concurrent use.
type Once struct {
	root string
	// parts returns the paths of the files of which a shard consists; nil if shards are files.
	parts func(path string) []string
	plain map[string]string   // paths, by the name without a codec
	files map[sameness]string // likewise
}

// NewOnce returns an empty Once. root is the directory to which paths are relative; "" if files can
// only be compared by name.
func NewOnce(root string) *Once {
	return &Once{root: root, plain: map[string]string{}, files: map[sameness]string{}}
}

// Twin returns the path of an added shard that is o under another name or in another codec, "" if
// there is none.
func (x *Once) Twin(o storage.Object) string {
	if path := x.plain[formats.ParseName(o.Path).Plain]; x.parts == nil && path != "" && path != o.Path {
		return path
	}
	if path := x.files[x.samenessOf(o)]; x.root != "" && path != "" && path != o.Path && x.same(path, o.Path) {
		return path
	}
	return ""
}

// same reports whether the shards of two paths consist of the same files.
func (x *Once) same(a, b string) bool {
	if x.parts == nil {
		return sameFile(x.root, a, b)
	}
	return slices.EqualFunc(x.parts(a), x.parts(b), func(a, b string) bool { return sameFile(x.root, a, b) })
}

// samenessOf returns what o has in common with its twins. A shard made of parts is compared by the
// parts' inodes, because its version depends on their paths.
func (x *Once) samenessOf(o storage.Object) (s sameness) {
	if x.parts == nil {
		return samenessOf(o)
	}
	if x.root == "" {
		return s
	}
	for _, part := range x.parts(o.Path) {
		if info, _, err := lookAt(x.root, part); err == nil {
			s.inode = s.inode*31 + info.Sys().(*syscall.Stat_t).Ino
		}
	}
	return s
}

// Add adds a shard that has no twin.
func (x *Once) Add(o storage.Object) {
	x.plain[formats.ParseName(o.Path).Plain] = o.Path
	if x.root != "" {
		x.files[x.samenessOf(o)] = o.Path
	}
}

// Remove removes a shard that was added.
func (x *Once) Remove(o storage.Object) {
	if plain := formats.ParseName(o.Path).Plain; x.plain[plain] == o.Path {
		delete(x.plain, plain)
	}
	if key := x.samenessOf(o); x.files[key] == o.Path {
		delete(x.files, key)
	}
}

// Still reports whether two paths that were twins still are: both exist, and differ only in the
// codec or are of one file.
func (x *Once) Still(a, b string) bool {
	if !otherCodec(a, b) {
		return sameFile(x.root, a, b)
	}
	_, err := os.Stat(filepath.Join(x.root, a))
	return err == nil
}

// TwiceReason returns why a shard does not count because of its twin.
func TwiceReason(path, twin string) string {
	if otherCodec(path, twin) {
		return "it is " + twin + " in another codec" + oneOfThem
	}
	return "it is " + twin + " by another name" + oneOfThem
}

// otherCodec reports whether two names differ only in the codec.
func otherCodec(a, b string) bool { return formats.ParseName(a).Plain == formats.ParseName(b).Plain }

// sameness is what two names of one file have in common. Other files may have it, too.
type sameness struct {
	sizeBytes int64
	modTime   int64
	inode     uint64
}

func samenessOf(o storage.Object) sameness {
	return sameness{o.SizeBytes, o.Version.ModTimeNanos, o.Version.Inode}
}

// sameFile reports whether two paths below root are the same file or directory (device and inode),
// or the same member of one file.
func sameFile(root, a, b string) bool {
	x, inX, err := lookAt(root, a)
	if err != nil {
		return false
	}
	y, inY, err := lookAt(root, b)
	return err == nil && inX == inY && os.SameFile(x, y)
}

// lookAt returns the file info of a path below root. If the path continues inside a file, such as
// that of a zip file's member, it returns the info of the file, and the rest of the path.
func lookAt(root, path string) (info os.FileInfo, rest string, err error) {
	at := filepath.Join(root, path)
	whole := at
	for info, err = os.Stat(at); errors.Is(err, syscall.ENOTDIR); info, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	return info, whole[len(at):], err
}

// sameFiles returns alike without the namings whose files are the shards under other names, such as
// the blobs of a hub's cache: names imply which of the two are the shards.
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
