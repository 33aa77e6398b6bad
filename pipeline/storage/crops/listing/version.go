package listing

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// versions computes the version of a cube: a hash of its documents and its objects.
type versions struct {
	identity, changes hash.Hash
	changed           bool // at least one change time is known
	buf               []byte
}

func newVersions(kind string) *versions {
	v := &versions{identity: sha256.New(), changes: sha256.New()}
	_, _ = v.identity.Write([]byte(kind))
	return v
}

// object adds a document.
func (v *versions) object(o storage.Object) {
	v.buf = binary.LittleEndian.AppendUint64(v.buf[:0], uint64(len(o.Path)))
	_, _ = v.identity.Write(append(v.buf, o.Path...))
	v.numbers(v.identity, o.SizeBytes, o.Version.ModTimeNanos, int64(o.Version.Inode))
	v.numbers(v.changes, o.Version.ChangeTimeNanos)
	v.changed = v.changed || o.Version.ChangeTimeNanos != 0
}

// digest is a hash of the objects of an array.
type digest struct {
	identity, changes [sha256.Size]byte
	changed           bool
}

// digestOf returns the digest of objects, sorted by number.
func digestOf(list []numbered) (d digest) {
	v := newVersions("")
	v.numbers(v.identity, int64(len(list)))
	const together = 64
	for len(list) > 0 {
		some := list[:min(together, len(list))]
		list = list[len(some):]
		v.buf = v.buf[:0]
		for i := range some {
			x := &some[i]
			for _, n := range [...]uint64{uint64(x.number), uint64(x.sizeBytes), uint64(x.modTimeNanos), x.inode} {
				v.buf = binary.LittleEndian.AppendUint64(v.buf, n)
			}
			v.changed = v.changed || x.changeTimeNanos != 0
		}
		_, _ = v.identity.Write(v.buf)
		v.buf = v.buf[:0]
		for i := range some {
			v.buf = binary.LittleEndian.AppendUint64(v.buf, uint64(some[i].changeTimeNanos))
		}
		_, _ = v.changes.Write(v.buf)
	}
	v.identity.Sum(d.identity[:0])
	v.changes.Sum(d.changes[:0])
	d.changed = v.changed
	return d
}

// objects adds the objects of an array.
func (v *versions) objects(d *digest) {
	_, _ = v.identity.Write(d.identity[:])
	_, _ = v.changes.Write(d.changes[:])
	v.changed = v.changed || d.changed
}

func (v *versions) numbers(to hash.Hash, list ...int64) {
	v.buf = v.buf[:0]
	for _, n := range list {
		v.buf = binary.LittleEndian.AppendUint64(v.buf, uint64(n))
	}
	_, _ = to.Write(v.buf)
}

func (v *versions) version() storage.Version {
	h := v.identity.Sum(nil)
	version := storage.Version{ModTimeNanos: int64(binary.LittleEndian.Uint64(h) >> 1), Inode: binary.LittleEndian.Uint64(h[8:]) | 1}
	if v.changed {
		version.ChangeTimeNanos = int64(binary.LittleEndian.Uint64(v.changes.Sum(nil)) >> 1)
	}
	return version
}
