package state

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Volume is the record of a volume published at a target.
type Volume struct {
	ID     string `json:"volume_id"`
	Target string `json:"target"` // absolute, clean
	Server string `json:"server"` // its key
	// Writable means that checkpoint may be written there.
	Writable bool `json:"writable,omitempty"`
	// Pod and Namespace are the volume's pod, if kubelet provides that.
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// Server is the record of what a server was started with.
type Server struct {
	Key     string   `json:"key"`
	Dataset string   `json:"dataset"`
	Args    []string `json:"args"`
	// Credentials means that it was started with credentials, so it can't be restarted without a
	// pod that provides them.
	Credentials bool    `json:"credentials,omitempty"`
	Process     Process `json:"process"`
}

// Process identifies a process of this boot. The zero value identifies none.
type Process struct {
	PID int `json:"pid"`
	// Ticks is its start time (proc_pid_stat(5), field 22), Boot the machine's boot.
	Ticks uint64 `json:"started_ticks"`
	Boot  string `json:"boot_id"`
}

// Store is the driver's directory.
type Store struct {
	dir  string
	step func(done string)
}

// Open makes the directories of a store and removes what killed writers have left. step, unless
// nil, is called after each change on disk with a description of it.
func Open(dir string, step func(done string)) (*Store, error) {
	if step == nil {
		step = func(string) {}
	}
	s := &Store{dir: dir, step: step}
	for _, d := range []string{s.volumes(), s.servers()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		left, err := filepath.Glob(filepath.Join(d, "*", "*"+unfinished))
		if err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		more, err := filepath.Glob(filepath.Join(d, "*"+unfinished))
		if err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		for _, f := range append(left, more...) {
			if err := os.Remove(f); err != nil {
				return nil, fmt.Errorf("state: %w", err)
			}
		}
	}
	return s, nil
}

func (s *Store) volumes() string { return filepath.Join(s.dir, "volumes") }
func (s *Store) servers() string { return filepath.Join(s.dir, "servers") }

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// ServerDir returns a server's own directory.
func (s *Store) ServerDir(key string) string { return filepath.Join(s.servers(), key) }

// Point returns a server's mount point.
func (s *Store) Point(key string) string { return filepath.Join(s.ServerDir(key), "mnt") }

func (s *Store) volumeFile(target string) string {
	sum := sha256.Sum256([]byte(target))
	return filepath.Join(s.volumes(), hex.EncodeToString(sum[:16])+".json")
}

func (s *Store) serverFile(key string) string { return filepath.Join(s.ServerDir(key), "server.json") }

const keyBytes = 32

// Key returns the node's own secret, which is made when it is first needed.
func (s *Store) Key() ([]byte, error) {
	path := filepath.Join(s.dir, "key")
	key, err := os.ReadFile(path)
	switch {
	case err == nil && len(key) == keyBytes:
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("state: %s has %d bytes and must have %d: remove it, and a new key is made (running servers are then not shared with new pods)", path, len(key), keyBytes)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("state: %w", err)
	}
	key = make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	if err := s.write(path, key); err != nil {
		return nil, err
	}
	return key, nil
}

// Volume returns the record of the volume published at target; found is false if there is none.
func (s *Store) Volume(target string) (v Volume, found bool, err error) {
	found, err = read(s.volumeFile(target), &v)
	return v, found, err
}

// Volumes returns all volumes.
func (s *Store) Volumes() ([]Volume, error) {
	entries, err := os.ReadDir(s.volumes())
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var all []Volume
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		var v Volume
		found, err := read(filepath.Join(s.volumes(), e.Name()), &v)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, v)
		}
	}
	return all, nil
}

// PutVolume writes a volume's record.
func (s *Store) PutVolume(v Volume) error { return s.put(s.volumeFile(v.Target), v) }

// RemoveVolume removes a volume's record. It is not an error if there is none.
func (s *Store) RemoveVolume(target string) error { return s.remove(s.volumeFile(target)) }

// Server returns a server's record; found is false if there is none.
func (s *Store) Server(key string) (r Server, found bool, err error) {
	found, err = read(s.serverFile(key), &r)
	return r, found, err
}

// Servers returns the keys of all servers that have a directory.
func (s *Store) Servers() ([]string, error) {
	entries, err := os.ReadDir(s.servers())
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Name())
	}
	return keys, nil
}

// PutServer writes a server's record and makes its directories.
func (s *Store) PutServer(r Server) error {
	if err := os.MkdirAll(s.ServerDir(r.Key), 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := os.Mkdir(s.Point(r.Key), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("state: %w", err)
	}
	s.step("server's directory made")
	return s.put(s.serverFile(r.Key), r)
}

// RemoveServer removes a server's directory. Nothing may be mounted there: it returns an error if a
// directory is not empty, and leaves it.
func (s *Store) RemoveServer(key string) error {
	for _, path := range []string{s.Point(key), s.serverFile(key), s.ServerDir(key)} {
		if err := s.remove(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state: %w", err)
	}
	s.step(filepath.Base(path) + " removed")
	return nil
}

func read(path string, to any) (found bool, err error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("state: %w", err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		return false, fmt.Errorf("state: %s: %w: the file is damaged; delete the pods that use it, remove the file, and start the driver again", path, err)
	}
	return true, nil
}

func (s *Store) put(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %s: %w", path, err)
	}
	return s.write(path, append(b, '\n'))
}

// unfinished ends the names of files that are being written.
const unfinished = ".unfinished"

func (s *Store) write(path string, b []byte) error {
	if err := s.replace(path, b); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	s.step(filepath.Base(path) + " written")
	return nil
}

func (s *Store) replace(path string, b []byte) error {
	f, err := os.OpenFile(path+unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	s.step(filepath.Base(path) + " not yet renamed")
	if err := os.Rename(path+unfinished, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
