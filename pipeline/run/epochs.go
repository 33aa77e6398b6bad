package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

func epochName(n uint64) string { return epochPrefix + strconv.FormatUint(n, 10) }

// Numbers returns the epochs in the directory, in ascending order. If a run was pinned, they need
// not begin at 0; on network file systems, some may be missing.
func (d *Directory) Numbers() (numbers []uint64, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), epochPrefix)
		n, err := strconv.ParseUint(digits, 10, 63)
		if ok && err == nil && strconv.FormatUint(n, 10) == digits {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Latest returns the highest epoch that any node has started, or None. It looks for the files after
// the last one seen by their names, because listings may be out of date on network file systems.
func (d *Directory) Latest() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		next := d.latest + 1 // None + 1 is 0
		switch _, err := d.Epoch(next); {
		case err == nil:
			d.latest = next
		case errors.Is(err, fs.ErrNotExist):
			return d.latest, nil
		default:
			return d.latest, err
		}
	}
}

// Epoch reads the record of an epoch. The error is fs.ErrNotExist if it has not been started.
func (d *Directory) Epoch(n uint64) (Epoch, error) {
	var e Epoch
	err := d.readRecord(epochName(n), &e, func() error { return e.validate(d.info.Run, n) })
	return e, err
}

// ErrBehind means that an epoch is not the one after the latest.
var ErrBehind = errors.New("it is not the next epoch")

// Take starts an epoch with the snapshot that has the given text, and returns the record that
// counts: e, or the one that another node has written first. The epoch must be the one after
// Latest. Version, Run and Snapshot are filled in. If Take returns an error, the epoch may have
// been started nevertheless: Epoch finds out.
func (d *Directory) Take(e Epoch, text []byte) (Epoch, error) {
	e.Version, e.Run, e.Snapshot = Version, d.info.Run, Fingerprint(text)
	latest, err := d.Latest()
	if err != nil {
		return Epoch{}, err
	}
	if e.Epoch != latest+1 {
		if there, err := d.Epoch(e.Epoch); err == nil {
			return there, nil
		}
		return Epoch{}, fmt.Errorf("%s: epoch %d: %w: that is %d", d.path, e.Epoch, ErrBehind, latest+1)
	}
	record, err := encode(&e)
	if err == nil {
		err = d.keep(e.Snapshot, text)
	}
	if err == nil {
		err = d.publish(epochName(e.Epoch), record)
	}
	if err != nil && !errors.Is(err, errTaken) {
		return Epoch{}, fmt.Errorf("take epoch %d in %s: %w", e.Epoch, d.path, err)
	}
	there, err := d.Epoch(e.Epoch)
	if err != nil {
		return Epoch{}, err
	}
	d.mu.Lock()
	if d.latest == None || d.latest < e.Epoch {
		d.latest = e.Epoch
	}
	d.mu.Unlock()
	d.prune()
	return there, nil
}
