package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// programBytes returns the size of a program without symbols and debugging information, which
// releases leave out (go build -ldflags "-s -w"): it subtracts the sections of the file that are
// not loaded. debug/elf would add more to this program's size than the answer is worth.
func programBytes(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	left, err := symbolBytes(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return st.Size() - left, nil
}

// symbolBytes reads the section table of a 64-bit little-endian program.
//
//	header:  "\x7fELF" 2 1 … │ 40 u64 table's offset │ 58 u16 bytes of an entry │ 60 u16 entries
//	entry:   4 u32 type │ 8 u64 flags │ 32 u64 bytes in the file
func symbolBytes(f io.ReaderAt) (int64, error) {
	const headerBytes, entryBytes = 64, 64
	const allocated, noBits = 2, 8 // flag: loaded into memory; type: not in the file
	header := make([]byte, headerBytes)
	if _, err := f.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	little := binary.LittleEndian
	if string(header[:6]) != "\x7fELF\x02\x01" || little.Uint16(header[58:]) != entryBytes {
		return 0, errors.New("it is no program of 64 bits, little-endian")
	}
	sum := int64(0)
	entry := make([]byte, entryBytes)
	for i := range int64(little.Uint16(header[60:])) {
		if _, err := f.ReadAt(entry, int64(little.Uint64(header[40:]))+i*entryBytes); err != nil {
			return 0, fmt.Errorf("section %d: %w", i, err)
		}
		if little.Uint32(entry[4:]) != noBits && little.Uint64(entry[8:])&allocated == 0 {
			sum += int64(little.Uint64(entry[32:]))
		}
	}
	return sum, nil
}
