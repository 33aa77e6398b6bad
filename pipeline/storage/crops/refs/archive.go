package refs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/kerchunk"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/zipped"
)

// archive is a hierarchy that one file describes.
type archive struct {
	listed storage.Object // the describing file
	table  *table.Table
	paths  []string // of the files that hold objects, below the root

	mu    sync.RWMutex
	files map[int]file // those that were looked up
	begin []int64      // of members of a zip file whose headers were read; else 0
}

// file is a file that holds objects, as it was last looked up.
type file struct {
	listed   storage.Object
	identity [2]uint64
}

// source is where an object's bytes come from: a range of a file, or the describing file.
type source struct {
	object storage.Object
	of     storage.Object
	offset int64
	own    bool // it is inline, not in a file
	inline []byte
	summed bool // crc32 is the checksum of all its bytes
	crc32  uint32
}

// check compares the checksum of bytes that were read, if they are the whole object.
func (x *source) check(b []byte) error {
	if !x.summed || int64(len(b)) != x.object.SizeBytes {
		return nil
	}
	if sum := crc32.ChecksumIEEE(b); sum != x.crc32 {
		return fmt.Errorf("its bytes have the CRC-32 %08x, and %08x in the directory of %s: the zip file is damaged, copy it again", sum, x.crc32, x.of.Path)
	}
	return nil
}

// read reads the file that describes a hierarchy, and holds at most mostBytes of it in memory.
func (s *Storage) read(ctx context.Context, o storage.Object, mostBytes int64) (a *archive, err error) {
	a = &archive{listed: o, files: map[int]file{}}
	r := storage.NewReader(ctx, s.under, o, 1<<20)
	defer r.Close()
	if zipped.Is(o.Path) {
		if a.table, err = zipped.Parse(r, o.SizeBytes, mostBytes); err != nil {
			return nil, s.foreign(r, err)
		}
		a.begin = make([]int64, a.table.Len())
		a.paths = []string{o.Path}
		a.files[0] = newFile(o)
		return a, nil
	}
	if o.SizeBytes > kerchunk.MaxBytes {
		return nil, fmt.Errorf("it has %d bytes: reference files of up to %d are read: write the references in several files", o.SizeBytes, kerchunk.MaxBytes)
	}
	if a.table, err = kerchunk.Parse(bufio.NewReaderSize(io.NewSectionReader(r, 0, o.SizeBytes), 1<<20), mostBytes); err != nil {
		return nil, s.foreign(r, err)
	}
	var problems []error
	const maxProblems = 5
	for i := range a.table.Files() {
		at, err := s.config.resolve(o.Path, a.table.File(i))
		if err != nil {
			if problems = append(problems, err); len(problems) == maxProblems {
				break
			}
		}
		a.paths = append(a.paths, at)
	}
	return a, errors.Join(problems...)
}

// headBytes is how much of a file is read to recognize another format.
const headBytes = 512

// foreign returns the error for a file that failed to parse with err. If its first bytes show that
// it has another format, that error is more helpful.
func (s *Storage) foreign(r io.ReaderAt, err error) error {
	head := make([]byte, headBytes)
	n, failed := r.ReadAt(head, 0)
	if s.config.Foreign == nil || failed != nil && failed != io.EOF || bytes.HasPrefix(head, []byte("PK")) {
		return err // a zip file, or unreadable
	}
	return cmp.Or(s.config.Foreign(head[:n]), err)
}

// resolve returns the path, below the root, of a file named in a reference file.
func (c *Config) resolve(from, name string) (string, error) {
	at := strings.TrimPrefix(name, "file://")
	absolute := at != name || strings.HasPrefix(at, "/") || strings.Contains(at, "://")
	for _, root := range c.Roots {
		rest, ok := strings.CutPrefix(at, strings.TrimSuffix(root, "/")+"/")
		if !ok || !absolute {
			continue
		}
		if strings.HasPrefix(root, "http") {
			var err error
			if rest, err = url.PathUnescape(rest); err != nil || strings.Contains(at, "?") {
				return "", fmt.Errorf("it refers to %.300q, which is not a URL of a file without a query", name)
			}
		}
		from, at, absolute = "", rest, false
		break
	}
	switch {
	case strings.Contains(at, "::"):
		return "", fmt.Errorf("it refers to %.300q: files in files are not read", name)
	case absolute && strings.Contains(at, "://"):
		return "", fmt.Errorf("it refers to %.300q: references to a bucket or web server are read only if the reference file is there, too, above what it refers to", name)
	case absolute:
		return "", outside(name)
	}
	at = path.Join(path.Dir(from), at)
	if at == "." || at == ".." || strings.HasPrefix(at, "../") || strings.HasPrefix(at, "/") || strings.ContainsRune(at, 0) {
		return "", outside(name)
	}
	return at, nil
}

func outside(name string) error {
	return fmt.Errorf("it refers to %.300q, which is not a file below the dataset's directory: put the reference file into a directory that holds all these files, or links to them", name)
}

func newFile(o storage.Object) file {
	h := sha256.New()
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(o.Path)))
	b = append(b, o.Path...)
	for _, n := range []uint64{uint64(o.SizeBytes), uint64(o.Version.ModTimeNanos), o.Version.Inode} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	_, _ = h.Write(b)
	sum := h.Sum(nil)
	return file{o, [2]uint64{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])}}
}

// name returns the path of key i.
func (a *archive) name(i int) string { return a.listed.Path + "/" + a.table.Key(i) }

// object looks up the file of key i.
func (a *archive) object(ctx context.Context, under storage.Storage, i int, look look) (storage.Object, error) {
	p := a.table.Place(i)
	f := file{}
	if p.Kind != table.Inline {
		if err := a.resolveMember(ctx, under, i); err != nil {
			return storage.Object{}, err
		}
		o, err := look(ctx, a.paths[p.File])
		if err != nil {
			return storage.Object{}, a.lacks(i, err)
		}
		f = a.seen(p.File, o)
	}
	x, err := a.made(i, f)
	return x.object, err
}

// seen stores the present version of a file.
func (a *archive) seen(n int, o storage.Object) file {
	f := newFile(o)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files[n] = f
	return f
}

// file returns a file as it was last looked up.
func (a *archive) file(n int) (f file, known bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	f, known = a.files[n]
	return f, known
}

// inherit takes over what before knows about files that both refer to.
func (a *archive) inherit(before *archive) {
	before.mu.RLock()
	defer before.mu.RUnlock()
	known := map[string]file{}
	for n, f := range before.files {
		known[before.paths[n]] = f
	}
	for n, at := range a.paths {
		if f, ok := known[at]; ok && at != a.listed.Path {
			a.files[n] = f
		}
	}
}

// lacks returns an error about the file of key i.
func (a *archive) lacks(i int, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		// The object exists, but the file that holds it does not.
		return fmt.Errorf("%s: the file %s, which it refers to, is not there: put it back, or write the references without it", a.name(i), a.paths[a.table.Place(i).File])
	}
	return fmt.Errorf("%s: %w", a.name(i), err)
}

// resolveMember reads the local header of a member of a zip file.
func (a *archive) resolveMember(ctx context.Context, under storage.Storage, i int) error {
	p := a.table.Place(i)
	switch p.Kind {
	case table.Member:
	case table.Compressed:
		return fmt.Errorf("%s is compressed in the zip file (%s), so it can't be read in place: write the zip file without compression, as zarr's ZipStore does, or unpack it", a.name(i), zipped.Method(p.Offset))
	default:
		return nil
	}
	a.mu.RLock()
	begin := a.begin[i]
	a.mu.RUnlock()
	if begin > 0 {
		return nil
	}
	key := a.table.Key(i)
	head := make([]byte, min(int64(zipped.HeaderBytes(key)), a.listed.SizeBytes-p.Offset))
	if err := storage.ReadAt(ctx, under, a.listed, head, p.Offset); err != nil {
		return err
	}
	n, err := zipped.Header(head, key)
	if err == nil && p.Size > a.listed.SizeBytes-p.Offset-n {
		err = fmt.Errorf("it has %d bytes, more than follow its header: the zip file is damaged", p.Size)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.name(i), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin[i] = p.Offset + n
	return nil
}

// source returns the source of key i, if its file has been looked up.
func (a *archive) source(i int) (source, bool) {
	p := a.table.Place(i)
	f := file{}
	if p.Kind != table.Inline {
		var known bool
		if f, known = a.file(p.File); !known {
			return source{}, false
		}
	}
	x, err := a.made(i, f)
	return x, err == nil
}

// made returns the source of key i, given that its file is f.
func (a *archive) made(i int, f file) (x source, err error) {
	p := a.table.Place(i)
	x = source{of: f.listed, offset: p.Offset}
	x.object = storage.Object{Path: a.name(i), SizeBytes: p.Size}
	switch p.Kind {
	case table.Inline:
		x.own, x.inline = true, p.Bytes
		sum := sha256.Sum256(p.Bytes)
		x.object.Version = version([2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}, 0)
		return x, nil
	case table.Whole:
		x.object.SizeBytes = f.listed.SizeBytes
	case table.Member:
		a.mu.RLock()
		begin := a.begin[i]
		a.mu.RUnlock()
		if begin == 0 {
			return x, fmt.Errorf("%s was not listed", x.object.Path)
		}
		x.offset, x.summed, x.crc32 = begin, true, p.CRC32
	case table.Compressed:
		return x, fmt.Errorf("%s is compressed", x.object.Path)
	}
	if end := x.offset + x.object.SizeBytes; end > f.listed.SizeBytes {
		return x, fmt.Errorf("%s: it refers to bytes [%d, %d) of %s, which has %d bytes: write the references again", x.object.Path, x.offset, end, f.listed.Path, f.listed.SizeBytes)
	}
	x.object.Version = version(f.identity, uint64(x.offset))
	x.object.Version.ChangeTimeNanos = f.listed.Version.ChangeTimeNanos
	return x, nil
}

// version returns the version of an object at an offset of something with an identity.
func version(identity [2]uint64, offset uint64) storage.Version {
	x := offset + 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return storage.Version{ModTimeNanos: int64((identity[0] ^ x) >> 1), Inode: identity[1] | 1}
}
