package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrNotWhole means that an object is not completely in the cache, or not any more.
var ErrNotWhole = errors.New("it is not all in the cache")

// Exact reports whether URL and Validator are the full identity of an object: very long ones are
// cut.
func (e *Entry) Exact() bool {
	return e.Damaged == "" && keyOf(Identity{URL: e.URL, Validator: e.Validator}, e.SizeBytes).name() == e.Name
}

// Whole reports whether all of an object is in the cache, as counted by List.
func (e *Entry) Whole() bool {
	return e.Damaged == "" && e.HereBytes == pagesOf(e.SizeBytes)*pageBytes
}

// Copy writes all bytes of an object that List has returned, and checks each page. The error is
// ErrNotWhole if some are missing, or do not match their sums.
func (d *Directory) Copy(ctx context.Context, name string, w io.Writer) error {
	k, ok := parseName(name)
	if !ok {
		return fmt.Errorf("object %q: %w", name, errNoObject)
	}
	o, err := d.dir.openStored(k)
	if errors.Is(err, errVanished) {
		return ErrNotWhole
	}
	if err != nil {
		return err
	}
	defer o.close()
	return o.copy(ctx, w)
}

func (o *stored) copy(ctx context.Context, w io.Writer) error {
	s, buf := newSummer(o.key), make([]byte, pieceBytes)
	return o.chunks(func(r run, sums []byte) error {
		for begin := r.begin; begin < r.end; begin += pieceBytes / pageBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			piece := run{begin, min(begin+pieceBytes/pageBytes, r.end)}
			n, err := o.dir.disk.read(o.data, buf[:piece.bytes()], begin*pageBytes)
			if err != nil {
				return err
			}
			clear(buf[n:])
			for page := piece.begin; page < piece.end; page++ {
				if sum := sumOf(sums, page-r.begin); sum == 0 || sum != s.sum(page, buf[(page-begin)*pageBytes:][:pageBytes]) {
					return ErrNotWhole
				}
			}
			if _, err := w.Write(buf[:min(piece.bytes(), o.header.ObjectBytes-begin*pageBytes)]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drop makes readers fetch all of an object again.
func (d *Directory) Drop(name string) error {
	k, ok := parseName(name)
	if !ok {
		return fmt.Errorf("object %q: %w", name, errNoObject)
	}
	o, err := d.dir.openStored(k)
	if errors.Is(err, errVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	defer o.close()
	return o.chunks(func(r run, _ []byte) error {
		if d.dir.punches {
			return o.drop(r)
		}
		if err := d.dir.zero(o.sums, r); err != nil {
			return err
		}
		return d.dir.disk.touch(o.data, time.Now()) // readers of sealed objects rely on the time
	})
}
