package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
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
		return Epoch{}, fmt.Errorf("starting epoch %d in %s: %w", e.Epoch, d.path, err)
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

// Version is the version of run.json and of epoch files.
const Version = 1

// maxRecordBytes bounds the files that hold an Info or an Epoch.
const maxRecordBytes = 4096

// Info is the description of a run. It never changes. Its fields are those of run.json, in that
// order.
type Info struct {
	Version int    `json:"version"`
	Run     string `json:"run"`    // 32 hexadecimal digits, random
	Format  string `json:"format"` // of its shards, as a catalog formats it
	Kind    string `json:"kind"`   // of its shards, as a catalog formats it
	Newest  string `json:"newest"` // name or mtime: the criterion for newer shards
	Made    string `json:"made"`   // RFC 3339, UTC
}

// Epoch records the snapshot of an epoch. Its fields are those of the file, in that order. New
// shards are those that the previous epoch does not have; gone ones are those that only it has.
type Epoch struct {
	Version    int    `json:"version"`
	Run        string `json:"run"`
	Epoch      uint64 `json:"epoch"`
	Snapshot   string `json:"snapshot"` // its fingerprint, 64 hexadecimal digits
	Shards     uint64 `json:"shards"`
	Records    uint64 `json:"records"`
	Units      uint64 `json:"units"`
	Bytes      uint64 `json:"bytes"` // decoded
	NewShards  uint64 `json:"new_shards"`
	NewRecords uint64 `json:"new_records"`
	NewUnits   uint64 `json:"new_units"`
	GoneShards uint64 `json:"gone_shards"`
	Window     string `json:"window"` // as requested
	Taken      string `json:"taken"`  // RFC 3339, UTC
	By         string `json:"by"`     // host/pid
}

// encode returns a record in the form of its file.
func encode(record any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // it ends the line
	e.SetEscapeHTML(false)
	if err := e.Encode(record); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	b.WriteString(hex.EncodeToString(sum[:]))
	b.WriteByte('\n')
	if b.Len() >= maxRecordBytes {
		return nil, fmt.Errorf("it would have %d bytes, but must have fewer than %d", b.Len(), maxRecordBytes)
	}
	return b.Bytes(), nil
}

var errCut = errors.New("it is damaged: it should have two lines, the second the SHA-256 of the first: copy it again from an intact run directory, or begin another run with another --run")

// decode parses a record in exactly the form that encode writes: a difference in any byte is an
// error.
func decode(text []byte, record any) error {
	if len(text) >= maxRecordBytes {
		return fmt.Errorf("it has %d bytes, but must have fewer than %d", len(text), maxRecordBytes)
	}
	end := bytes.IndexByte(text, '\n') + 1
	sum := sha256.Sum256(text[:end])
	if end == 0 || string(text[end:]) != hex.EncodeToString(sum[:])+"\n" {
		return errCut
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text[:end], &head); err != nil {
		return err
	}
	if head.Version != Version {
		return fmt.Errorf("it is of version %d, and this lsiofs reads version %d: use a newer lsiofs", head.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(text[:end]))
	d.DisallowUnknownFields()
	if err := d.Decode(record); err != nil {
		return err
	}
	again, err := encode(record)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, text) {
		return fmt.Errorf("its fields are not %s, once each and in this order", strings.Join(fieldsOf(record), ", "))
	}
	return nil
}

func fieldsOf(record any) (names []string) {
	t := reflect.TypeOf(record).Elem()
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

func (i *Info) validate() error {
	switch {
	case !isHex(i.Run, 32):
		return fmt.Errorf("its run (%q) is not 32 hexadecimal digits", i.Run)
	case i.Newest != "name" && i.Newest != "mtime":
		return fmt.Errorf("its newest (%q) is neither name nor mtime", i.Newest)
	case i.Format == "":
		return errors.New("it names no format")
	}
	return nil
}

func (e *Epoch) validate(run string, number uint64) error {
	switch {
	case e.Run != run:
		return fmt.Errorf("it is of run %s, and this is run %s: put the file of this run back, or begin another run with another --run", e.Run, run)
	case e.Epoch != number:
		return fmt.Errorf("it is of epoch %d", e.Epoch)
	case !isHex(e.Snapshot, 64):
		return fmt.Errorf("its snapshot (%q) is not 64 hexadecimal digits", e.Snapshot)
	}
	return nil
}

// isHex reports whether s is n lower-case hexadecimal digits.
func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

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
