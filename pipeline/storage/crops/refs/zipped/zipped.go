// Package zipped reads the directory of a zip file, such as zarr's ZipStore writes: uncompressed
// members can be read in place.
//
//	│ header, name, extra │ member 0 │ header, name, extra │ member 1 │ … │ directory │ end │
//
// The directory holds the offset of each member's local header. The header's length may differ from
// that in the directory, so it is read from the header itself (Header). Archives of 4 GiB or 65535
// members and more (zip64) are supported; archives of several disks and encrypted ones are refused.
// Compressed members are listed as such. If a name occurs twice the last one counts, as in Python's
// zipfile, with which zarr replaces members. A place holds the checksum of its member, for callers
// that read all of it at once.
//
// The format is defined by PKWARE's APPNOTE.TXT, version 6.3.10.
package zipped

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
)

const (
	// MaxDirectoryBytes bounds the directory. A million members take about 80 MB.
	MaxDirectoryBytes = 1 << 30

	endBytes      = 22
	locatorBytes  = 20
	end64Bytes    = 56
	entryBytes    = 46
	headerBytes   = 30
	maxComment    = 1<<16 - 1
	none32        = 1<<32 - 1
	none16        = 1<<16 - 1
	flagEncrypted = 1 << 0
	flagStrong    = 1 << 6
	flagMasked    = 1 << 13
	methodStored  = 0
)

var little = binary.LittleEndian

// directory is where the directory is.
type directory struct {
	offset, size, members int64
}

// Parse reads the directory of an archive of size bytes into a table that takes at most mostBytes.
// Places have the kinds Member and Compressed, and the file "".
func Parse(r io.ReaderAt, size, mostBytes int64) (*table.Table, error) {
	d, err := find(r, size)
	if err != nil {
		return nil, err
	}
	b := table.NewBuilder(true, mostBytes)
	in := &reader{r: io.NewSectionReader(r, d.offset, d.size)}
	for range d.members {
		if err := in.entry(b, d.offset); err != nil {
			return nil, err
		}
	}
	if len(in.rest()) > 0 && !bytes.HasPrefix(in.rest(), []byte("PK\x05\x05")) { // a signature
		return nil, errors.New("its directory has more members than its end counts: it is damaged")
	}
	return b.Table()
}

// find finds the directory.
func find(r io.ReaderAt, size int64) (d directory, err error) {
	tail := make([]byte, min(size, endBytes+maxComment+locatorBytes))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return d, err
	}
	at := -1
	for i := len(tail) - endBytes; i >= 0; i-- {
		if string(tail[i:i+4]) == "PK\x05\x06" && i+endBytes+int(little.Uint16(tail[i+20:])) == len(tail) {
			at = i
			break
		}
	}
	if at < 0 {
		return d, errors.New("it is not a zip file, or was cut off: it has no directory at its end: copy it again")
	}
	end := tail[at:]
	place := size - int64(len(tail)) + int64(at) // offset of end
	d = directory{offset: int64(little.Uint32(end[16:])), size: int64(little.Uint32(end[12:])), members: int64(little.Uint16(end[10:]))}
	disk, with, here := little.Uint16(end[4:]), little.Uint16(end[6:]), int64(little.Uint16(end[8:]))
	if at >= locatorBytes && string(tail[at-locatorBytes:at-locatorBytes+4]) == "PK\x06\x07" {
		if place, err = d.extend(r, tail[at-locatorBytes:at], place-locatorBytes); err != nil {
			return d, err
		}
	} else if disk != 0 || with != 0 || here != d.members {
		return d, errors.New("it is one of several parts of a zip file: join them")
	}
	switch {
	case d.offset < 0 || d.size < 0 || d.offset > place || d.size != place-d.offset:
		return d, fmt.Errorf("its directory should be at [%d, %d), and ends at %d: it is damaged, or bytes were put before it", d.offset, d.offset+d.size, place)
	case d.size > MaxDirectoryBytes:
		return d, fmt.Errorf("its directory has %d bytes: at most %d are read", d.size, MaxDirectoryBytes)
	case d.members < 0 || d.members > d.size/entryBytes:
		return d, fmt.Errorf("its directory of %d bytes has no room for %d members: it is damaged", d.size, d.members)
	}
	return d, nil
}

// extend replaces the numbers that the zip64 end record overrides. locator is the zip64 locator, at
// offset at; the end record comes before it, and place is the offset where it begins.
func (d *directory) extend(r io.ReaderAt, locator []byte, at int64) (place int64, err error) {
	place = int64(little.Uint64(locator[8:]))
	if place < 0 || place > at-end64Bytes {
		return 0, errors.New("the place of its directory's end is outside of it: it is damaged")
	}
	var end [end64Bytes]byte
	if _, err := r.ReadAt(end[:], place); err != nil {
		return 0, err
	}
	if string(end[:4]) != "PK\x06\x06" || little.Uint64(end[4:]) != uint64(at-place-12) {
		return 0, errors.New("it has no zip64 directory where its end points: it is damaged")
	}
	if little.Uint32(end[16:]) != 0 || little.Uint32(end[20:]) != 0 || little.Uint32(locator[16:]) > 1 {
		return 0, errors.New("it is one of several parts of a zip file: join them")
	}
	d.members, d.size, d.offset = int64(little.Uint64(end[32:])), int64(little.Uint64(end[40:])), int64(little.Uint64(end[48:]))
	return place, nil
}

// reader reads a directory from front to back.
type reader struct {
	r    io.Reader
	buf  []byte
	used int
}

// take returns the next n bytes, valid until the next call.
func (x *reader) take(n int) ([]byte, error) {
	if len(x.buf)-x.used < n {
		const window = 256 << 10
		x.buf = append(make([]byte, 0, max(window, n)), x.buf[x.used:]...)
		x.used = 0
		got, err := io.ReadAtLeast(x.r, x.buf[len(x.buf):cap(x.buf)], n-len(x.buf))
		x.buf = x.buf[:len(x.buf)+got]
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, errors.New("its directory ends in the middle of a member: it is damaged")
		}
		if err != nil {
			return nil, err
		}
	}
	b := x.buf[x.used : x.used+n]
	x.used += n
	return b, nil
}

// rest returns bytes that were read but not taken; it is empty at the end of the directory.
func (x *reader) rest() []byte {
	if x.used == len(x.buf) {
		b, _ := x.take(1)
		return b
	}
	return x.buf[x.used:]
}

// entry reads a member. Members end before limit.
func (x *reader) entry(b *table.Builder, limit int64) error {
	head, err := x.take(entryBytes)
	if err != nil {
		return err
	}
	if string(head[:4]) != "PK\x01\x02" {
		return errors.New("its directory has other bytes where a member has to be: it is damaged")
	}
	flags, method := little.Uint16(head[8:]), little.Uint16(head[10:])
	p := table.Place{Kind: table.Member, CRC32: little.Uint32(head[16:]), Size: int64(little.Uint32(head[20:])), Offset: int64(little.Uint32(head[42:]))}
	decoded, disk := int64(little.Uint32(head[24:])), little.Uint16(head[34:])
	name, extra, comment := int(little.Uint16(head[28:])), int(little.Uint16(head[30:])), int(little.Uint16(head[32:]))
	all, err := x.take(name + extra + comment)
	if err != nil {
		return err
	}
	key := all[:name]
	if err := extend(all[name:name+extra], &decoded, &p.Size, &p.Offset); err != nil {
		return fmt.Errorf("member %.200q: %w", key, err)
	}
	if bytes.HasSuffix(key, []byte("/")) && p.Size == 0 {
		return nil // a directory
	}
	switch {
	case disk != 0 && disk != none16:
		err = errors.New("it is in another part of a zip file: join the parts")
	case flags&(flagEncrypted|flagStrong|flagMasked) != 0:
		err = errors.New("it is encrypted: write the archive without a password")
	case p.Size < 0 || p.Offset < 0 || p.Offset > limit-headerBytes-int64(name) || p.Size > limit-headerBytes-int64(name)-p.Offset:
		err = fmt.Errorf("%d bytes at %d are more than come before the directory: it is damaged", p.Size, p.Offset)
	case method != methodStored:
		p.Kind, p.Offset = table.Compressed, int64(method)
	case p.Size != decoded:
		err = fmt.Errorf("it is stored without compression, and has both %d and %d bytes: it is damaged", p.Size, decoded)
	}
	if err == nil {
		return b.Add(key, p, "")
	}
	return fmt.Errorf("member %.200q: %w", key, err)
}

// extend replaces numbers that don't fit in 32 bits by those of the zip64 field, which has them in
// this order.
func extend(extra []byte, numbers ...*int64) error {
	for len(extra) >= 4 {
		kind, n := little.Uint16(extra), int(little.Uint16(extra[2:]))
		if n > len(extra)-4 {
			break
		}
		field := extra[4 : 4+n]
		extra = extra[4+n:]
		if kind != 1 {
			continue
		}
		for _, x := range numbers {
			if *x != none32 {
				continue
			}
			if len(field) < 8 {
				return errors.New("its zip64 numbers are missing: it is damaged")
			}
			*x, field = int64(little.Uint64(field)), field[8:]
		}
		return nil
	}
	for _, x := range numbers {
		if *x == none32 {
			return errors.New("its zip64 numbers are missing: it is damaged")
		}
	}
	return nil
}

// HeaderBytes returns how many bytes Header needs for a member named key.
func HeaderBytes(key string) int { return headerBytes + len(key) }

// Header parses the local header of a member, and returns the size of all that comes before its
// bytes.
func Header(header []byte, key string) (int64, error) {
	switch {
	case len(header) < HeaderBytes(key) || string(header[:4]) != "PK\x03\x04":
		return 0, errors.New("its header is not where the directory has it: the zip file is damaged")
	case int(little.Uint16(header[26:])) != len(key) || string(header[headerBytes:HeaderBytes(key)]) != key:
		return 0, errors.New("its header has another name: the zip file is damaged")
	case little.Uint16(header[8:]) != methodStored || little.Uint16(header[6:])&flagEncrypted != 0:
		return 0, errors.New("it is compressed by its header, and not by the directory: the zip file is damaged")
	}
	return int64(HeaderBytes(key)) + int64(little.Uint16(header[28:])), nil
}

// Method returns the name of a compression method.
func Method(n int64) string {
	names := map[int64]string{1: "shrink", 8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
	if name := names[n]; name != "" {
		return name
	}
	return fmt.Sprint("method ", n)
}

// Is reports whether a file of this name is taken for a zip file.
func Is(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".zip") }
