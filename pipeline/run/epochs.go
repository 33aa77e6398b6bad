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

// Numbers lists the epochs that the directory has now, in order. Where a run was pinned, or
// on network file systems, they need not begin at 0 or be all that are taken.
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

// Latest is the highest epoch that is taken, by any node, or None. It looks for the files
// that follow the last one it has seen, by their names: listings may be old on network
// file systems.
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

// Epoch reads what an epoch is of. It is fs.ErrNotExist where it is not taken.
func (d *Directory) Epoch(n uint64) (Epoch, error) {
	var e Epoch
	err := d.readRecord(epochName(n), &e, func() error { return e.validate(d.info.Run, n) })
	return e, err
}

// ErrBehind says that an epoch is not the one behind the latest.
var ErrBehind = errors.New("it is not the next epoch")

// Take publishes an epoch, of the snapshot whose text is given, and returns what counts:
// e, or what another node has published before. The epoch must be the one behind Latest.
// Version, Run and Snapshot are filled in. When it returns an error, the epoch may be
// taken all the same: Epoch tells.
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
