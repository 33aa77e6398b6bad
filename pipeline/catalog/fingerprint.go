package catalog

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// datasetLines writes the text whose SHA-256 is the dataset's fingerprint
// (ORDER.md, Dataset order).
func datasetLines(w io.Writer, f spec.Format, shards []packed) error {
	b := bufio.NewWriterSize(w, 64<<10)
	name := f.Name
	if name == "fixed" {
		name = fmt.Sprintf("fixed %d %d %d", f.RecordBytes, f.StrideBytes, f.HeaderBytes)
	}
	if len(f.Arrays) > 0 {
		name = "npy " + f.ArrayNames()
	}
	_, _ = fmt.Fprintf(b, "lsiofs/1 dataset %s\n", name)
	var line []byte
	for i := range shards {
		h := shards[i].blob.header()
		line = strconv.AppendUint(line[:0], h.records, 10)
		decoded := h.decodedBytes
		if len(f.Arrays) > 0 {
			decoded = h.streamBytes // the object has a header of its own
		}
		line = strconv.AppendInt(append(line, ' '), decoded, 10)
		line = strconv.AppendUint(append(line, ' '), h.entryPoints, 10)
		line = append(append(append(line, ' '), shards[i].object.Path...), '\n')
		_, _ = b.Write(line)
	}
	return b.Flush()
}

func fingerprintOf(f spec.Format, shards []packed) [32]byte {
	h := sha256.New()
	_ = datasetLines(h, f, shards) // a hash gives no errors
	return [32]byte(h.Sum(nil))
}
