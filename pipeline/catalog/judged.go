package catalog

import (
	"encoding/binary"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// judged is a file that was opened to see whether it is a shard, and is none.
// It is remembered so that an unchanged dataset opens without opening files.
type judged struct {
	path      string
	sizeBytes int64
	version   storage.Version
}

func judgedOf(o storage.Object) judged { return judged{o.Path, o.SizeBytes, o.Version} }

func marshalJudged(list []judged) []byte {
	var b []byte
	for _, j := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(j.sizeBytes))
		b = binary.LittleEndian.AppendUint64(b, uint64(j.version.ModTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, j.version.Inode)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(j.path)))
		b = append(b, j.path...)
	}
	return b
}

// unmarshalJudged reads as many entries as are whole.
func unmarshalJudged(b []byte) map[judged]bool {
	list := map[judged]bool{}
	for len(b) >= 28 {
		n := uint64(binary.LittleEndian.Uint32(b[24:]))
		if n > uint64(len(b)-28) {
			break
		}
		list[judged{
			path:      string(b[28 : 28+n]),
			sizeBytes: int64(binary.LittleEndian.Uint64(b)),
			version: storage.Version{
				ModTimeNanos: int64(binary.LittleEndian.Uint64(b[8:])),
				Inode:        binary.LittleEndian.Uint64(b[16:]),
			},
		}] = true
		b = b[28+n:]
	}
	return list
}
