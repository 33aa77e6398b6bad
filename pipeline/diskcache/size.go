package diskcache

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// Size is the maximum size of a cache, as the user specified it. It is a plain value; the zero
// value is auto.
type Size struct {
	Off     bool
	Bytes   int64   // > 0 if specified
	Percent float64 // of the file system, > 0 if specified
}

// ParseSize parses a value of --cache-size: "auto", "off", a number of bytes with or without a unit
// ("200GiB", "1.5TB"), or a percentage of the file system ("30%").
func ParseSize(text string) (Size, error) {
	switch text {
	case "auto", "":
		return Size{}, nil
	case "off":
		return Size{Off: true}, nil
	}
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent > 0 && percent <= 100) {
			return Size{}, fmt.Errorf("cache size %q: a percentage must be above 0%% and at most 100%%", text)
		}
		return Size{Percent: percent}, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return Size{}, fmt.Errorf("cache size %q: use auto, off, bytes with a unit such as 200GiB, or a share of the file system such as 30%%", text)
	}
	return Size{Bytes: int64(n)}, nil
}

func (s Size) String() string {
	switch {
	case s.Off:
		return "off"
	case s.Percent > 0:
		return strconv.FormatFloat(s.Percent, 'g', -1, 64) + "%"
	case s.Bytes > 0:
		return humanize.IBytes(uint64(s.Bytes))
	}
	return "auto"
}

// Place describes where a cache is going to be, and what it is for. Sizes are in bytes.
type Place struct {
	DatasetBytes int64 // all objects
	Objects      int64
	OpenBytes    int64 // chunks between their first and their last record, at most
	TotalBytes   int64 // size of the file system
	FreeBytes    int64 // free on the file system, for this user
	CacheBytes   int64 // that the cache takes already
	// Ephemeral means that what is written there counts as memory of the machine, or as a
	// container's own storage, and a container that takes much of it is killed (tmpfs, overlayfs).
	Ephemeral bool
	Network   bool // a network's file system, or FUSE's
}

// leastEphemeral is what a cache gets on an ephemeral file system even if an order needs less.
const leastEphemeral = 1 << 30

// What auto adds to that: file systems need blocks of their own for fragmented files, and what
// other processes add is known a minute later.
const (
	slackPart  = 64
	leastSlack = 64 << 20
)

// NeedBytes returns how much a cache takes that holds all of the dataset: its pages, a sum for each
// page, and the header and the last page of each object.
func (p Place) NeedBytes() int64 {
	return p.DatasetBytes + p.DatasetBytes/(pageBytes/sumBytes) + p.Objects*(headerBytes+2*pageBytes)
}

// Bound returns how many bytes a cache may take on its disk; 0 for no cache. Auto takes what the
// dataset needs, in addition to what the cache has already, which may belong to other datasets, if
// this fits into half of what is free (counting what the cache has as free), and otherwise that
// half. On an ephemeral file system it takes at most 1.25 × what is open, or 1 GiB.
func (s Size) Bound(p Place) int64 {
	switch {
	case s.Off:
		return 0
	case s.Bytes > 0:
		return s.Bytes
	case s.Percent > 0:
		return int64(float64(p.TotalBytes) * s.Percent / 100)
	}
	bound := min(p.NeedBytes()+p.NeedBytes()/slackPart+leastSlack+p.CacheBytes, (p.FreeBytes+p.CacheBytes)/2)
	if p.Ephemeral {
		bound = min(bound, max(leastEphemeral, p.OpenBytes+p.OpenBytes/4))
	}
	return bound
}

// Reserve returns how much of a file system a cache leaves free by default: a tenth, at most 20
// GiB.
func Reserve(totalBytes int64) int64 { return min(totalBytes/10, 20<<30) }

// DownToReserve returns why a cache keeps nothing more, in words for the user, if writing n bytes to
// a file system with freeBytes would leave less free than reserveBytes; otherwise it returns "".
func DownToReserve(freeBytes, reserveBytes, n int64) string {
	if freeBytes-n >= reserveBytes {
		return ""
	}
	return fmt.Sprintf("the file system has %s free, and the cache leaves %s free: free some, or set --cache-reserve",
		humanize.IBytes(uint64(max(freeBytes, 0))), humanize.IBytes(uint64(reserveBytes)))
}

// Survey describes the place where a cache is or is going to be: all of a Place except what it is
// for. It creates nothing. A directory that Open would refuse is an error.
func Survey(dir string) (Place, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Place{}, fmt.Errorf("cache directory %s: %w", dir, err)
	}
	var st unix.Statfs_t
	at := absolute
	for {
		err := again(func() error { return unix.Statfs(at, &st) })
		if err == nil {
			break
		}
		if err != unix.ENOENT || at == filepath.Dir(at) {
			return Place{}, fmt.Errorf("cache directory: %w", &fs.PathError{Op: "statfs", Path: at, Err: err})
		}
		at = filepath.Dir(at)
	}
	p := Place{
		TotalBytes: int64(st.Blocks) * st.Bsize,
		FreeBytes:  int64(st.Bavail) * st.Bsize,
		Ephemeral:  ephemeral(int64(st.Type)),
	}
	if f, err := os.Open(at); err == nil {
		p.Network = uring.TraitsOf(int(f.Fd())).Remote
		_ = f.Close()
	}
	if at != absolute {
		return p, nil
	}
	if _, err := (kernel{}).statAt(unix.AT_FDCWD, filepath.Join(absolute, tagName)); errors.Is(err, fs.ErrNotExist) {
		return p, nil // it is empty, or will be refused when it is opened
	}
	c, err := lookAt(kernel{}, absolute)
	if errors.Is(err, unix.ENOENT) {
		return p, nil // a process that was creating it was killed, or has yet to write its tag: opening it does that
	}
	if err != nil {
		return Place{}, fmt.Errorf("cache directory %s: %w", absolute, err)
	}
	defer c.close()
	if c.store < 0 {
		return p, nil
	}
	err = c.files(func(f file) error {
		p.CacheBytes += f.blocks
		return nil
	})
	if err != nil {
		return Place{}, fmt.Errorf("cache directory %s: %w", absolute, err)
	}
	return p, nil
}

// ephemeral reports whether a file system is a machine's memory, or a container's own storage.
func ephemeral(kind int64) bool {
	return kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC || kind == unix.OVERLAYFS_SUPER_MAGIC
}
