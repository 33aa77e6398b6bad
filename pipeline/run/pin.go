package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// Pin creates a run directory that continues a run whose own directory is elsewhere: the run i with
// its number i.Run, in which epoch e.Epoch has the snapshot with that text. Earlier epochs are not
// in it. The epoch is written before run.json, so a process that is killed leaves nothing that
// looks like another run. Pinning the same again changes nothing.
//
// If the directory has another run, or another snapshot for that epoch, Pin returns an error.
func Pin(path string, i Info, e Epoch, text []byte) (*Directory, error) {
	return pin(path, i, e, text, kernel{})
}

func pin(path string, i Info, e Epoch, text []byte, sys system) (d *Directory, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("run directory: pin epoch %d in %s: %w", e.Epoch, path, err)
		}
	}()
	if there, err := Read(path); err == nil {
		return there, there.pinned(i, e, text)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	i.Version, e.Version, e.Run, e.Snapshot = Version, Version, i.Run, Fingerprint(text)
	if err := errors.Join(i.validate(), e.validate(i.Run, e.Epoch)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(path, snapshotsDir), 0o755); err != nil {
		return nil, err
	}
	d = &Directory{path: path, sys: sys, latest: None, info: i}
	if d.trusted, err = index.TrustIn(path); err != nil {
		return nil, err
	}
	record, err := encode(&e)
	if err == nil {
		err = d.keep(e.Snapshot, text)
	}
	if err == nil {
		err = d.publish(epochName(e.Epoch), record)
	}
	if err != nil && !errors.Is(err, errTaken) {
		return nil, err
	}
	if err := d.beginAs(i); err != nil {
		return nil, err
	}
	if err := d.pinned(i, e, text); err != nil {
		return nil, err
	}
	return d, d.list()
}

// pinned returns an error if the run is not the one to be pinned.
func (d *Directory) pinned(i Info, e Epoch, text []byte) error {
	if d.info.Run != i.Run {
		return fmt.Errorf("it has run %s, and the checkpoint is of run %s: name a directory that has none with --run", d.info.Run, i.Run)
	}
	if err := d.Suits(i); err != nil {
		return err
	}
	there, err := d.Epoch(e.Epoch)
	if err != nil {
		return err
	}
	if want := Fingerprint(text); there.Snapshot != want {
		return fmt.Errorf("its snapshot there is %s, not %s: name the snapshot of the checkpoint, or another directory with --run", short(there.Snapshot), short(want))
	}
	return nil
}

// short abbreviates a fingerprint for messages.
func short(fingerprint string) string { return fingerprint[:12] + "…" }
