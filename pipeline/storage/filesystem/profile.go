package filesystem

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// FoundProfile is the profile that mounts of a path use, and its origin.
type FoundProfile struct {
	Profile storage.Profile `json:"profile"`
	Place   Place           `json:"place"`
	File    string          `json:"file,omitempty"` // the file with the profile; "" for defaults
	// Problem is why a stored file is not used: it is damaged, has another version, or is for
	// another file system.
	Problem error         `json:"-"`
	Cells   []Measurement `json:"measured,omitempty"`
}

// ProfileDir returns the directory where profiles are stored, which also holds indexes without a
// place of their own.
func ProfileDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for storage profiles: %w", err)
	}
	return filepath.Join(cache, "lsiofs"), nil
}

const (
	filePrefix = "storage-"
	fileSuffix = ".json"
)

// fileName returns the file name for an identity.
func fileName(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return fmt.Sprintf("%s%x%s", filePrefix, sum[:12], fileSuffix)
}

// FindProfile is FindProfileIn for the user's directory. If the user has none, it returns defaults.
func FindProfile(path string) FoundProfile {
	dir, err := ProfileDir()
	if err != nil {
		dir = ""
	}
	return FindProfileIn(dir, path)
}

// FindProfileIn returns the profile of the file system of path: the one stored in dir, or the
// defaults of its kind. It never fails: an unusable file is reported in Problem, and a path that
// can't be examined counts as unknown storage.
func FindProfileIn(dir, path string) FoundProfile {
	place, err := Look(path)
	if err != nil {
		return FoundProfile{Profile: storage.DefaultProfile(storage.KindUnknown), Place: Place{Kind: storage.KindUnknown}, Problem: err}
	}
	return findAt(dir, place)
}

// Endpoint returns the place of a service, for the canonical URL of a dataset's root there
// (remote.Source.Name). Measurements of one dataset apply to the whole endpoint:
//
//	s3://bucket/train            s3://bucket     a bucket of Amazon's, which is in one region
//	s3+https://host/bucket/train s3+https://host
//	https://host:8080/train      https://host:8080
func Endpoint(kind storage.Kind, root string) Place {
	scheme, rest, ok := strings.Cut(root, "://")
	if !ok {
		return Place{Kind: kind}
	}
	host, _, _ := strings.Cut(rest, "/")
	name := scheme + "://" + host
	if u, err := url.Parse(name); err != nil || u.User != nil || host == "" {
		return Place{Kind: kind}
	}
	return Place{Kind: kind, FileSystem: scheme, Device: host, Identity: "endpoint " + name}
}

// FindEndpointProfile is FindEndpointProfileIn for the user's directory. If the user has none, it
// returns defaults.
func FindEndpointProfile(kind storage.Kind, root string) FoundProfile {
	dir, err := ProfileDir()
	if err != nil {
		dir = ""
	}
	return FindEndpointProfileIn(dir, kind, root)
}

// FindEndpointProfileIn returns the profile of a service: the one stored in dir for its endpoint,
// or the defaults of its kind. An unusable file is reported in Problem.
func FindEndpointProfileIn(dir string, kind storage.Kind, root string) FoundProfile {
	return findAt(dir, Endpoint(kind, root))
}

// findAt returns the profile stored for a place in dir; dir is "" if there is none.
func findAt(dir string, place Place) FoundProfile {
	f := FoundProfile{Profile: storage.DefaultProfile(place.Kind), Place: place}
	if dir == "" || place.Identity == "" {
		return f
	}
	file := filepath.Join(dir, fileName(place.Identity))
	s, err := load(file, place)
	switch {
	case err == nil:
		f.Profile, f.File, f.Cells = s.Profile, file, s.Cells
	case !errors.Is(err, os.ErrNotExist):
		f.Problem = fmt.Errorf("storage profile %s is ignored: %w; measure again with lsiofs tune, or remove it", file, err)
	}
	return f
}

func load(file string, place Place) (StoredProfile, error) {
	text, err := readBounded(file)
	if err != nil {
		return StoredProfile{}, err
	}
	s, err := ParseProfile(text)
	switch {
	case err != nil:
		return StoredProfile{}, err
	case s.Place.Identity != place.Identity:
		return StoredProfile{}, fmt.Errorf("it is for the file system %q, not %q", s.Place.Identity, place.Identity)
	case s.Place.Kind != place.Kind:
		return StoredProfile{}, fmt.Errorf("it was measured on %s, and the file system lies on %s now", s.Place.Kind, place.Kind)
	}
	return s, nil
}

func readBounded(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxStoredBytes+1))
}

// ListedProfile is the file of a stored profile.
type ListedProfile struct {
	File    string
	Stored  StoredProfile
	Problem error // why it can't be used; Stored is then empty
}

// ListProfiles returns the profiles stored in dir, at most most of them.
func ListProfiles(dir string, most int) []ListedProfile {
	files, _ := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
	var list []ListedProfile
	for _, file := range files[:min(len(files), most)] {
		l := ListedProfile{File: file}
		text, err := readBounded(file)
		if err == nil {
			l.Stored, err = ParseProfile(text)
		}
		if err == nil && filepath.Base(file) != fileName(l.Stored.Place.Identity) {
			l.Stored, err = StoredProfile{}, errors.New("its name is that of another file system")
		}
		l.Problem = err
		list = append(list, l)
	}
	return list
}

// SaveProfile stores a measured profile in dir, which it creates if necessary. It replaces the
// profile stored for the same file system. The file is written atomically, and readable only by its
// owner.
func SaveProfile(dir string, s StoredProfile) (file string, err error) {
	if s.Place.Identity == "" {
		return "", errors.New("storage profile: nothing tells this file system from others, so there is no name to store it under")
	}
	text, err := s.marshal()
	if err != nil {
		return "", fmt.Errorf("storage profile: %w", err)
	}
	file = filepath.Join(dir, fileName(s.Place.Identity))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("storage profile: %w", err)
	}
	if err := replace(dir, file, text); err != nil {
		return "", fmt.Errorf("storage profile: %w", err)
	}
	return file, nil
}

// replace writes a file (0600, like os.CreateTemp) and renames it to file.
func replace(dir, file string, text []byte) (err error) {
	f, err := os.CreateTemp(dir, "."+filePrefix+"*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// Measurement is the measured speed of reads of one size and depth.
type Measurement struct {
	ReadBytes      int64   `json:"read_bytes"`
	Depth          int     `json:"depth"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Possible returns the throughput, in bytes per second, that was measured with reads of about that
// size, with any number in flight; 0 if nothing was measured.
func Possible(measured []Measurement, readBytes float64) float64 {
	size := int64(0) // the largest measured size that is no larger, or else the smallest
	for _, c := range measured {
		fits, sizeFits := float64(c.ReadBytes) <= readBytes, float64(size) <= readBytes
		if size == 0 || fits && (!sizeFits || c.ReadBytes > size) || !fits && !sizeFits && c.ReadBytes < size {
			size = c.ReadBytes
		}
	}
	best := 0.0
	for _, c := range measured {
		if c.ReadBytes == size {
			best = max(best, c.BytesPerSecond)
		}
	}
	return best
}

// StoredProfile is the contents of a profile's file: the profile, its file system, and the
// measurements.
type StoredProfile struct {
	Version int             `json:"version"`
	Place   Place           `json:"place"`
	Profile storage.Profile `json:"profile"`
	Cells   []Measurement   `json:"measured"`
}

const (
	storedVersion = 1
	// maxStoredBytes and maxCells are several times what tune writes.
	maxStoredBytes = 256 << 10
	maxCells       = 1024
)

// ParseProfile parses a profile's file. Anything but a complete profile of this version is an
// error. Fields of Profile.Pass and Profile.Ahead may be missing, as in files of earlier versions;
// they get the default of the kind.
func ParseProfile(text []byte) (StoredProfile, error) {
	var s StoredProfile
	if len(text) > maxStoredBytes {
		return s, fmt.Errorf("it has %d bytes, more than the %d of any profile", len(text), maxStoredBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return StoredProfile{}, fmt.Errorf("it is not a profile: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return StoredProfile{}, errors.New("it is not a profile: text follows it")
	}
	if s.Profile != (storage.Profile{}) {
		s.Profile = s.Profile.Or()
	}
	if err := s.validate(); err != nil {
		return StoredProfile{}, err
	}
	return s, nil
}

func (s *StoredProfile) validate() error {
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
func (s *StoredProfile) marshal() ([]byte, error) {
	s.Version = storedVersion
	whole := *s
	whole.Profile = s.Profile.Or()
	if err := whole.validate(); err != nil {
		return nil, err
	}
	whole.Profile = whole.Profile.WithoutDefaults()
	text, err := json.MarshalIndent(whole, "", "  ")
	if err == nil && len(text) >= maxStoredBytes {
		err = fmt.Errorf("the profile has %d bytes, more than %d", len(text), maxStoredBytes)
	}
	return append(text, '\n'), err
}
