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

// judgedHeadBytes are size, mtime, ctime, inode and the length of the path.
const judgedHeadBytes = 4*8 + 4

func judgedOf(o storage.Object) judged { return judged{o.Path, o.SizeBytes, o.Version} }

func marshalJudged(list []judged) []byte {
	var b []byte
	for _, j := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(j.sizeBytes))
		b = binary.LittleEndian.AppendUint64(b, uint64(j.version.ModTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, uint64(j.version.ChangeTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, j.version.Inode)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(j.path)))
		b = append(b, j.path...)
	}
	return b
}

// unmarshalJudged reads as many entries as are whole.
func unmarshalJudged(b []byte) map[judged]bool {
	list := map[judged]bool{}
	for len(b) >= judgedHeadBytes {
		n := uint64(binary.LittleEndian.Uint32(b[32:]))
		if n > uint64(len(b)-judgedHeadBytes) {
			break
		}
		list[judged{
			path:      string(b[judgedHeadBytes : judgedHeadBytes+n]),
			sizeBytes: int64(binary.LittleEndian.Uint64(b)),
			version: storage.Version{
				ModTimeNanos:    int64(binary.LittleEndian.Uint64(b[8:])),
				ChangeTimeNanos: int64(binary.LittleEndian.Uint64(b[16:])),
				Inode:           binary.LittleEndian.Uint64(b[24:]),
			},
		}] = true
		b = b[judgedHeadBytes+n:]
	}
	return list
}
