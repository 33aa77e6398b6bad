package demo

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// The demo's dataset: big enough that two thirds of it are left after both workers have read some
// of it, small enough to take no time.
const (
	Shards          = 8
	SamplesPerShard = 125
)

// sample is the contents of a sample's two members.
type sample struct{ text, label []byte }

// MakeShards writes the shards and returns all samples by key.
func MakeShards(dir string) (map[string]sample, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	samples := make(map[string]sample)
	random := rand.New(rand.NewPCG(1, 2))
	for shard := range Shards {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range SamplesPerShard {
			key := fmt.Sprintf("%06d", shard*SamplesPerShard+i)
			s := sample{text: sentence(random), label: fmt.Appendf(nil, "%d\n", random.IntN(10))}
			samples[key] = s
			if err := errors.Join(addMember(w, key+".txt", s.text), addMember(w, key+".cls", s.label)); err != nil {
				return nil, err
			}
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		if err := os.WriteFile(shardPath(dir, shard), b.Bytes(), 0o600); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

func shardPath(dir string, shard int) string {
	return filepath.Join(dir, fmt.Sprintf("shard-%03d.tar", shard))
}

func sentence(random *rand.Rand) []byte {
	words := []string{"mount", "a", "dataset", "every", "epoch", "is", "one", "file", "of", "records"}
	var b bytes.Buffer
	for range 20 + random.IntN(200) {
		b.WriteString(words[random.IntN(len(words))] + " ")
	}
	return append(b.Bytes(), '\n')
}

func addMember(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// tally counts how often each sample was read.
type tally struct {
	samples map[string]sample
	seen    map[string]int
	total   int
}

func newTally(samples map[string]sample) *tally {
	return &tally{samples: samples, seen: make(map[string]int)}
}

// wholeFile as the count of addTar means that the file is read to its end.
const wholeFile = -1

// addTar counts the first count samples of a tar file, which may be cut off after them, and checks
// their contents.
func (t *tally) addTar(path string, count int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := tar.NewReader(f)
	for n := 0; count == wholeFile || n < count; n++ {
		key, err := t.next(r)
		if errors.Is(err, io.EOF) && count == wholeFile {
			return nil
		}
		if err != nil {
			return exit.Errorf(exit.Check, "%s: sample %d: %w", path, n, err)
		}
		t.seen[key]++
		t.total++
	}
	return nil
}

// next reads both members of one sample.
func (t *tally) next(r *tar.Reader) (string, error) {
	key, text, err := readMember(r, ".txt")
	if err != nil {
		return "", err
	}
	other, label, err := readMember(r, ".cls")
	want, ok := t.samples[key]
	switch {
	case err != nil:
		return "", fmt.Errorf("second member: %w", noEOF(err))
	case !ok:
		return "", fmt.Errorf("sample %s is not in the dataset", key)
	case other != key || !bytes.Equal(text, want.text) || !bytes.Equal(label, want.label):
		return "", fmt.Errorf("the contents of sample %s differ from the shard's", key)
	}
	return key, nil
}

func readMember(r *tar.Reader, ending string) (key string, data []byte, err error) {
	h, err := r.Next()
	if err != nil {
		return "", nil, err
	}
	key, ok := strings.CutSuffix(h.Name, ending)
	if !ok {
		return "", nil, fmt.Errorf("found member %s, expected one with %s", h.Name, ending)
	}
	data, err = io.ReadAll(r)
	return key, data, noEOF(err)
}

// noEOF turns an end of file in the middle of a sample into io.ErrUnexpectedEOF, so that it is not
// taken for the end between two samples.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// check returns an error unless every sample was seen exactly once.
func (t *tally) check() error {
	var missing, twice int
	for key := range t.samples {
		switch n := t.seen[key]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing > 0 || twice > 0 || t.total != len(t.samples) {
		return fmt.Errorf("of %d samples, %d are missing and %d are duplicated", len(t.samples), missing, twice)
	}
	return nil
}

// delivered returns the numbers of records that a checkpoint counts for its workers.
func delivered(doc []byte, workers int) ([]uint64, error) {
	s, err := checkpoint.Parse(doc)
	if err != nil {
		return nil, exit.With(exit.Checkpoint, err)
	}
	if len(s.Done) != 1 || len(s.Done[0].Consumed) != workers {
		return nil, exit.Errorf(exit.Checkpoint, "the checkpoint must have one entry, of %d workers: %s", workers, doc)
	}
	return s.Done[0].Consumed, nil
}

// copyHead copies the first n bytes of a file to another, and reads no more.
func copyHead(from, to string, n int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, n)
	return errors.Join(err, out.Close())
}
