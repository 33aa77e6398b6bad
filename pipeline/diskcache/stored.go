package diskcache

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// sumsAtOnce is how many sums are read at a time: those of 256 MiB.
const sumsAtOnce = 64 << 10

// stored is an object in a directory that was opened by its name alone. Its .sums file is locked,
// so that no process removes it.
type stored struct {
	dir        *directory
	key        key
	header     header
	data, sums int
}

var errNoObject = errors.New("it is not an object of this cache's format")

// errVanished means that an object has been removed since it was listed: mounts make room.
var errVanished = fmt.Errorf("%w: it has been removed meanwhile", errNoObject)

// openStored opens an object. Errors wrap errNoObject if it is damaged or gone.
func (c *directory) openStored(k key) (*stored, error) {
	folder, err := c.subdirectory(c.store, k.folder(), false)
	if errors.Is(err, unix.ENOENT) {
		return nil, errVanished
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	defer c.disk.close(folder)
	if err := c.lockFolder(folder); err != nil {
		return nil, err
	}
	o := &stored{dir: c, key: k}
	if o.sums, err = c.disk.open(folder, k.name()+".sums", unix.O_RDWR); errors.Is(err, unix.ENOENT) {
		return nil, errVanished
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	b := make([]byte, headerBytes)
	n, err := c.disk.read(o.sums, b, 0)
	if err == nil {
		o.header, err = parseHeader(b[:n])
	}
	if err == nil {
		w := wanted{sizeBytes: o.header.ObjectBytes}
		var st unix.Stat_t
		if st, err = c.disk.stat(o.sums); err == nil && st.Size != w.sumsBytes() {
			err = errDamaged
		}
		if err == nil {
			o.data, err = c.openFile(folder, k.name()+".data", w.dataBytes())
		}
	}
	if err != nil {
		c.disk.close(o.sums)
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	_ = c.disk.lock(o.sums, unix.LOCK_SH|unix.LOCK_NB)
	return o, nil
}

func (o *stored) close() {
	o.dir.disk.close(o.sums)
	o.dir.disk.close(o.data)
}

func (o *stored) pages() int64 { return pagesOf(o.header.ObjectBytes) }

// chunks calls visit with the sums of all pages, up to sumsAtOnce of them at a time.
func (o *stored) chunks(visit func(r run, sums []byte) error) error {
	for begin := int64(0); begin < o.pages(); begin += sumsAtOnce {
		r := run{begin, min(begin+sumsAtOnce, o.pages())}
		sums, err := o.readSums(r)
		if err == nil {
			err = visit(r, sums)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *stored) readSums(r run) ([]byte, error) {
	sums := make([]byte, r.pages()*sumBytes)
	_, err := o.dir.disk.read(o.sums, sums, sumsAt(r.begin))
	return sums, err
}

func (o *stored) drop(r run) error { return o.dir.drop(o.data, o.sums, r) }

// count returns how many pages are cached.
func (o *stored) count() (here int64, err error) {
	err = o.chunks(func(_ run, sums []byte) error {
		for i := range int64(len(sums) / sumBytes) {
			if sumOf(sums, i) != 0 {
				here++
			}
		}
		return nil
	})
	return here, err
}

// verify checks all cached pages, and returns those that do not match their sums.
func (o *stored) verify() (here int64, bad []run, err error) {
	s, buf := newSummer(o.key), make([]byte, pieceBytes)
	err = o.chunks(func(r run, sums []byte) error {
		for begin := r.begin; begin < r.end; begin += pieceBytes / pageBytes {
			piece := run{begin, min(begin+pieceBytes/pageBytes, r.end)}
			of := sums[(begin-r.begin)*sumBytes:][:piece.pages()*sumBytes]
			if !slices.ContainsFunc(of, func(b byte) bool { return b != 0 }) {
				continue
			}
			n, err := o.dir.disk.read(o.data, buf[:piece.bytes()], begin*pageBytes)
			if err != nil {
				return err
			}
			clear(buf[n:])
			for i := range piece.pages() {
				switch sum := sumOf(of, i); {
				case sum == 0:
				case sum == s.sum(begin+i, buf[i*pageBytes:][:pageBytes]):
					here++
				default:
					here++
					// A mount may have dropped the page since its sum was read.
					now, err := o.readSums(run{begin + i, begin + i + 1})
					if err != nil {
						return err
					}
					if sumOf(now, 0) == sumOf(of, i) {
						bad = with(bad, begin+i)
					}
				}
			}
		}
		return nil
	})
	return here, bad, err
}
