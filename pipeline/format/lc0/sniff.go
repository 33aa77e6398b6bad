package lc0

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// SniffTarBytes is the range of a tar in which its first game must begin for the tar to be
// recognized as lc0's. It keeps other tars from being read through in search of a game.
const SniffTarBytes = 64 << 10

const (
	// sniffGames is how many games are tried, so that a single damaged one does not decide.
	sniffGames = 16
	// sniffGamesBytes bounds how many bytes of them are read.
	sniffGamesBytes = 4 << 20
)

// SniffRaw reports whether Sniff accepts one of the first games of a tar. A game that ends early
// must have whole frames. Errors are read errors.
func (f Format) SniffRaw(raw io.ReaderAt, sizeBytes int64) (bool, error) {
	failing := &failingReaderAt{raw: raw}
	at, ok := gameIn(failing, min(sizeBytes, SniffTarBytes))
	if !ok {
		return false, failing.err
	}
	d, err := Tar{}.NewPartDecoder(io.NewSectionReader(failing, at, min(sizeBytes-at, sniffGamesBytes)), at)
	if err != nil {
		return false, err
	}
	defer d.Close()
	head := make([]byte, format.SniffBytes)
	for range sniffGames {
		if _, err := d.Next(); err != nil {
			break
		}
		if f.isSound(d, head) {
			return true, nil
		}
	}
	return false, failing.err
}

// isSound reports whether the decoder's current part begins like a game, with whole frames if it
// ends. It reads into head.
func (f Format) isSound(d io.Reader, head []byte) bool {
	n, err := io.ReadFull(d, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF || !f.Sniff(head[:n]) {
		return false
	}
	return n == len(head) || int64(n)%frameBytes[binary.LittleEndian.Uint32(head)] == 0
}

// gameIn returns the offset of the first game within a tar's first bytes.
func gameIn(raw io.ReaderAt, sizeBytes int64) (int64, bool) {
	d, err := Tar{}.NewPartDecoder(io.NewSectionReader(raw, 0, sizeBytes), 0)
	if err != nil {
		return 0, false
	}
	defer d.Close()
	at, err := d.Next()
	return at, err == nil
}

// failingReaderAt remembers that the storage failed, so that the tar is not mistaken for one of
// something else.
type failingReaderAt struct {
	raw io.ReaderAt
	err error
}

func (f *failingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.raw.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}
