package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Cell is one measurement.
type Cell struct {
	ReadBytes      int64   `json:"read_bytes"`
	Depth          int     `json:"depth"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Stored is the contents of a profile's file: the profile, its file system, and the measurements.
type Stored struct {
	Version int     `json:"version"`
	Place   Place   `json:"place"`
	Profile Profile `json:"profile"`
	Cells   []Cell  `json:"measured"`
}

const (
	storedVersion = 1
	// maxStoredBytes and maxCells are several times what tune writes.
	maxStoredBytes = 256 << 10
	maxCells       = 1024
)

// Parse parses a profile's file. Anything but a complete profile of this version is an error.
// Fields of Profile.Pass and Profile.Ahead may be missing, as in files of earlier versions; they
// get the default of the kind.
func Parse(text []byte) (Stored, error) {
	var s Stored
	if len(text) > maxStoredBytes {
		return s, fmt.Errorf("it has %d bytes, more than the %d of any profile", len(text), maxStoredBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Stored{}, fmt.Errorf("it is not a profile: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Stored{}, errors.New("it is not a profile: text follows it")
	}
	if s.Profile != (Profile{}) {
		s.Profile = s.Profile.Or()
	}
	if err := s.validate(); err != nil {
		return Stored{}, err
	}
	return s, nil
}

func (s *Stored) validate() error {
	if s.Version != storedVersion {
		return fmt.Errorf("its version (%d) is not %d", s.Version, storedVersion)
	}
	if err := s.Profile.Validate(); err != nil {
		return err
	}
	switch {
	case s.Profile.Tuned.IsZero():
		return errors.New("it has no time of measurement")
	case s.Place.Identity == "":
		return errors.New("it names no file system")
	case s.Place.Kind != s.Profile.Kind:
		return fmt.Errorf("it is for %s and for %s", s.Place.Kind, s.Profile.Kind)
	case len(s.Cells) > maxCells:
		return fmt.Errorf("it has %d measurements, more than %d", len(s.Cells), maxCells)
	}
	return nil
}

// marshal returns the file's text. Optional fields with default values are left out: the next
// program may have better defaults, and an earlier one does not know the fields.
func (s *Stored) marshal() ([]byte, error) {
	s.Version = storedVersion
	whole := *s
	whole.Profile = s.Profile.Or()
	if err := whole.validate(); err != nil {
		return nil, err
	}
	whole.Profile = whole.Profile.without()
	text, err := json.MarshalIndent(whole, "", "  ")
	if err == nil && len(text) >= maxStoredBytes {
		err = fmt.Errorf("the profile has %d bytes, more than %d", len(text), maxStoredBytes)
	}
	return append(text, '\n'), err
}
