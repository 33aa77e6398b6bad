package index

import (
	"encoding/binary"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Files that were opened and found not to be shards are remembered, so that an unchanged dataset
// opens without opening files.

// judgedHeadBytes is the size of size, mtime, ctime, inode and the length of the path.
const judgedHeadBytes = 4*8 + 4

func marshalJudged(list []storage.Object) []byte {
	var b []byte
	for _, o := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(o.SizeBytes))
		b = binary.LittleEndian.AppendUint64(b, uint64(o.Version.ModTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, uint64(o.Version.ChangeTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, o.Version.Inode)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(o.Path)))
		b = append(b, o.Path...)
	}
	return b
}

// unmarshalJudged reads all whole entries.
func unmarshalJudged(b []byte) map[storage.Object]bool {
	list := map[storage.Object]bool{}
	for len(b) >= judgedHeadBytes {
		n := uint64(binary.LittleEndian.Uint32(b[32:]))
		if n > uint64(len(b)-judgedHeadBytes) {
			break
		}
		list[storage.Object{
			Path:      string(b[judgedHeadBytes : judgedHeadBytes+n]),
			SizeBytes: int64(binary.LittleEndian.Uint64(b)),
			Version: storage.Version{
				ModTimeNanos:    int64(binary.LittleEndian.Uint64(b[8:])),
				ChangeTimeNanos: int64(binary.LittleEndian.Uint64(b[16:])),
				Inode:           binary.LittleEndian.Uint64(b[24:]),
			},
		}] = true
		b = b[judgedHeadBytes+n:]
	}
	return list
}
