package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

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
		return nil, fmt.Errorf("it would have %d bytes, and may have less than %d", b.Len(), maxRecordBytes)
	}
	return b.Bytes(), nil
}

var errCut = errors.New("it is damaged: it should have two lines, the second the SHA-256 of the first: copy it again from an intact run directory, or begin another run with another --run")

// decode parses a record in exactly the form that encode writes: a difference in any byte is an
// error.
func decode(text []byte, record any) error {
	if len(text) >= maxRecordBytes {
		return fmt.Errorf("it has %d bytes, and may have less than %d", len(text), maxRecordBytes)
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
		return fmt.Errorf("it is of version %d, and this lsiofs knows version %d: use a newer one", head.Version, Version)
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
