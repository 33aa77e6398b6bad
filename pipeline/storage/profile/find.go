package profile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Found is the profile that mounts of a path use, and its origin.
type Found struct {
	Profile Profile `json:"profile"`
	Place   Place   `json:"place"`
	File    string  `json:"file,omitempty"` // the file with the profile; "" for defaults
	// Problem is why a stored file is not used: it is damaged, has another version, or is for
	// another file system.
	Problem error  `json:"-"`
	Cells   []Cell `json:"measured,omitempty"`
}

// Dir returns the directory where profiles are stored, which also holds indexes without a place of
// their own.
func Dir() (string, error) {
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

// Find is FindIn for the user's directory. If the user has none, it returns defaults.
func Find(path string) Found {
	dir, err := Dir()
	if err != nil {
		dir = ""
	}
	return FindIn(dir, path)
}

// FindIn returns the profile of the file system of path: the one stored in dir, or the defaults of
// its kind. It never fails: an unusable file is reported in Problem, and a path that can't be
// examined counts as unknown storage.
func FindIn(dir, path string) Found {
	place, err := Look(path)
	if err != nil {
		return Found{Profile: Defaults(KindUnknown), Place: Place{Kind: KindUnknown}, Problem: err}
	}
	return findAt(dir, place)
}

func load(file string, place Place) (Stored, error) {
	text, err := readBounded(file)
	if err != nil {
		return Stored{}, err
	}
	s, err := Parse(text)
	switch {
	case err != nil:
		return Stored{}, err
	case s.Place.Identity != place.Identity:
		return Stored{}, fmt.Errorf("it is for the file system %q, not %q", s.Place.Identity, place.Identity)
	case s.Place.Kind != place.Kind:
		return Stored{}, fmt.Errorf("it was measured on %s, and the file system lies on %s now", s.Place.Kind, place.Kind)
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

// Listed is the file of a stored profile.
type Listed struct {
	File    string
	Stored  Stored
	Problem error // why it can't be used; Stored is then empty
}

// List returns the profiles stored in dir, at most most of them.
func List(dir string, most int) []Listed {
	files, _ := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
	var list []Listed
	for _, file := range files[:min(len(files), most)] {
		l := Listed{File: file}
		text, err := readBounded(file)
		if err == nil {
			l.Stored, err = Parse(text)
		}
		if err == nil && filepath.Base(file) != fileName(l.Stored.Place.Identity) {
			l.Stored, err = Stored{}, errors.New("its name is that of another file system")
		}
		l.Problem = err
		list = append(list, l)
	}
	return list
}

// Save stores a measured profile in dir, which it creates if necessary. It replaces the profile
// stored for the same file system. The file is written atomically, and readable only by its owner.
func Save(dir string, s Stored) (file string, err error) {
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
