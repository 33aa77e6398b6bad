package index

import (
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// snapshotsKept is how many snapshots' indexes are kept besides those in use: that of the current
// epoch, and of the one before.
const snapshotsKept = 2

// snapshotDigits is how many digits of the fingerprint are in the name of a snapshot's index.
const snapshotDigits = 16

func snapshotName(fingerprint [32]byte) string {
	return hex.EncodeToString(fingerprint[:snapshotDigits/2]) + ".index"
}

// LoadSnapshot opens the index of the snapshot with that fingerprint and checks all of it. It
// returns nil if the index is missing or not whole.
func (s *Store) LoadSnapshot(fingerprint [32]byte) *Image {
	if s.dir == "" {
		return nil
	}
	path := s.path(snapshotName(fingerprint))
	i, err := s.loadHeld(path)
	if err == nil && i.Fingerprint() != fingerprint {
		_ = i.Close()
		err = fmt.Errorf("%w: it is of another snapshot", errForeign)
	}
	if err != nil {
		if !errors.Is(err, iofs.ErrNotExist) {
			s.log.Warn("stored index of a snapshot can't be used and is made again", "index", path, "reason", err)
		}
		return nil
	}
	return i
}

// loadHeld opens a snapshot's index, which is not removed as long as the image is open.
func (s *Store) loadHeld(path string) (*Image, error) {
	f, err := s.openStored(path)
	if err != nil {
		return nil, err
	}
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) || !stillNamed(f) {
		_ = f.Close()
		return nil, iofs.ErrNotExist // it is being removed
	}
	m, err := s.mapWhole(f, false)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	i, err := openMapped(m, s.key)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	makeNewest(f)
	i.held = f
	return i, nil
}

// SealSnapshot writes the index of a snapshot under its own name, or to memory if necessary, and
// opens it. where names the dataset in messages. The file depends only on the content. It removes
// the indexes of other snapshots that no process has open, except for the newest.
func (s *Store) SealSnapshot(where string, c Content) (*Image, error) {
	sealing, err := newSealing(c, s.key)
	if err != nil {
		return nil, err
	}
	sealing.again = true
	m, f, err := s.seal(sealing, snapshotName(sealing.fingerprint), false)
	if err != nil {
		return nil, fmt.Errorf("index of a snapshot of %s: %w", where, err)
	}
	i, err := openMapped(m, s.key)
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, fmt.Errorf("the index of a snapshot of %s that was just written %w: check the disk of %s", where, err, s.dir)
	}
	if f != nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_SH) // the lock was exclusive
		makeNewest(f)
		i.held = f
		s.forgetSnapshots()
	}
	return i, nil
}

// snapshots returns the paths of the snapshots' indexes.
func (s *Store) snapshots() (paths []string) {
	for _, p := range s.files(s.name+".", ".index") {
		digits := strings.TrimSuffix(strings.TrimPrefix(p, s.path("")), ".index")
		if raw, err := hex.DecodeString(digits); err == nil && len(raw) == snapshotDigits/2 {
			paths = append(paths, p)
		}
	}
	return paths
}

// forgetSnapshots removes those snapshots' indexes that no process has open, except for the newest.
func (s *Store) forgetSnapshots() {
	for _, path := range beyondNewest(s.snapshots(), snapshotsKept) {
		f, err := s.openStored(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && stillNamed(f) {
			_ = os.Remove(path)
		}
		_ = f.Close()
	}
}
