package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

const (
	// keptSnapshots and keptBytes bound the snapshots of a run.
	keptSnapshots = 64
	keptBytes     = 1 << 30
	// maxTextBytes bounds a snapshot's text: enough for ten million shards.
	maxTextBytes = 512 << 20
	snapshotEnd  = ".gz"
)

// ErrGone means that the snapshot of an epoch is no longer stored.
var ErrGone = errors.New("it is no longer kept")

// Fingerprint returns the name of a snapshot: the fingerprint of the dataset that it is.
func Fingerprint(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func snapshotName(fingerprint string) string {
	return filepath.Join(snapshotsDir, fingerprint+snapshotEnd)
}

// Snapshot reads the text of a snapshot. The error is ErrGone if it is no longer stored.
func (d *Directory) Snapshot(fingerprint string) ([]byte, error) {
	if !isHex(fingerprint, 64) {
		return nil, fmt.Errorf("%q is not the name of a snapshot", fingerprint)
	}
	packed, err := d.read(snapshotName(fingerprint), maxTextBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the snapshot %s: %w in %s, which keeps the newest %d: copy %s back, or continue with a later epoch (lsiofs snapshots %s lists them)",
			fingerprint, ErrGone, d.path, keptSnapshots, snapshotName(fingerprint), d.path)
	}
	if err != nil {
		return nil, err
	}
	text, err := unpackText(packed)
	if err == nil && Fingerprint(text) != fingerprint {
		err = errors.New("its content does not match its name")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: copy it again from an intact run directory", filepath.Join(d.path, snapshotName(fingerprint)), err)
	}
	return text, nil
}

// Keeps reports whether the directory has the snapshot with that name, without reading it.
func (d *Directory) Keeps(fingerprint string) bool {
	if !isHex(fingerprint, 64) {
		return false
	}
	info, err := os.Stat(filepath.Join(d.path, snapshotName(fingerprint)))
	return err == nil && info.Mode().IsRegular()
}

// Kept returns the fingerprints of the snapshots in the directory.
func (d *Directory) Kept() (fingerprints []string, err error) {
	entries, err := os.ReadDir(filepath.Join(d.path, snapshotsDir))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), snapshotEnd); ok && isHex(name, 64) && e.Type().IsRegular() {
			fingerprints = append(fingerprints, name)
		}
	}
	return fingerprints, nil
}

// ReadSnapshot reads the text from a snapshot's file, which may be in any directory, with any name.
func ReadSnapshot(path string) (fingerprint string, text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }()
	packed, err := io.ReadAll(io.LimitReader(f, maxTextBytes))
	if err == nil {
		text, err = unpackText(packed)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s: it is not a snapshot: %w", path, err)
	}
	return Fingerprint(text), text, nil
}

func packText(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed) // callers wait for it
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpackText(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	text.Grow(likelyBytes(packed))
	if _, err := text.ReadFrom(io.LimitReader(z, maxTextBytes+1)); err != nil {
		return nil, err
	}
	if text.Len() > maxTextBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxTextBytes)
	}
	return text.Bytes(), nil
}

// likelyBytes returns how much memory to allocate for unpacking: the size in the trailer of the
// gzip file, unless a file of this length can't unpack to that much.
func likelyBytes(packed []byte) int {
	const mostRatio = 1032 // deflate's maximum
	if len(packed) < 4 {
		return 0
	}
	n := uint64(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
	return int(min(n, maxTextBytes, mostRatio*uint64(len(packed)))) + bytes.MinRead
}

// keep stores a snapshot, unless it is already stored and intact.
func (d *Directory) keep(fingerprint string, text []byte) error {
	if there, err := d.Snapshot(fingerprint); err == nil && bytes.Equal(there, text) {
		now := time.Now() // prune removes by age
		_ = os.Chtimes(filepath.Join(d.path, snapshotName(fingerprint)), now, now)
		return nil
	}
	packed, err := packText(text)
	if err != nil {
		return err
	}
	return d.replace(filepath.Join(d.path, snapshotsDir), fingerprint+snapshotEnd, packed)
}

// prune removes the oldest snapshots above the bounds. It never removes those of the newest two
// epochs. Failures are left for the next call.
func (d *Directory) prune() {
	dir := filepath.Join(d.path, snapshotsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	d.mu.Lock()
	latest := d.latest
	d.mu.Unlock()
	needed := map[string]bool{}
	for n := latest; n != None && n+1 >= latest; n-- {
		if e, err := d.Epoch(n); err == nil {
			needed[e.Snapshot] = true
		}
		if n == 0 {
			break
		}
	}
	var all []fs.FileInfo
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), snapshotEnd)
		if info, err := e.Info(); ok && err == nil && isHex(name, 64) && info.Mode().IsRegular() {
			all = append(all, info)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		newer := all[i].ModTime().Compare(all[j].ModTime())
		return newer > 0 || newer == 0 && all[i].Name() < all[j].Name()
	})
	bytes := int64(0)
	for i, info := range all {
		bytes += info.Size()
		if (i >= keptSnapshots || bytes > keptBytes) && !needed[strings.TrimSuffix(info.Name(), snapshotEnd)] {
			_ = d.sys.remove(filepath.Join(dir, info.Name()))
		}
	}
}
