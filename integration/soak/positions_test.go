package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// moveAbout saves and restores positions, in all possible forms.
func moveAbout(ctx context.Context, s *mounted, r *rand.Rand) error {
	epoch := uint64(r.IntN(epochs))
	switch r.IntN(6) {
	case 0: // an earlier save, some time later
		b, err := s.save()
		if err != nil {
			return err
		}
		pause(ctx, time.Duration(r.IntN(100))*time.Millisecond)
		d, err := parse(b)
		if err != nil {
			return err
		}
		return s.restore(b, d.position())
	case 1:
		return s.restore(fmt.Appendf(nil, `{"epoch": %d}`, epoch), position{epoch: epoch})
	case 2:
		n := r.IntN(len(s.m.d.records) + 1)
		p := position{epoch, []entry{{Batch: 1, Consumed: []int{n}}}}
		return s.restore(fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, epoch, n), p)
	case 3:
		return s.restoreOwnNumbers(r, epoch)
	case 4:
		return s.refuse(r)
	default:
		return s.moveByProgram(r)
	}
}

// restoreOwnNumbers continues where runs with other numbers of workers, which never took place,
// would have stopped.
func (s *mounted) restoreOwnNumbers(r *rand.Rand, epoch uint64) error {
	b, err := s.save()
	if err != nil {
		return err
	}
	d, err := parse(b)
	if err != nil {
		return err
	}
	d.Epoch, d.Done = epoch, nil
	left := len(s.m.d.records)
	for range 1 + r.IntN(3) {
		e := entry{Batch: 1 + r.IntN(4), Consumed: make([]int, 1+r.IntN(6))}
		for w := range e.Consumed {
			e.Consumed[w] = r.IntN(left/(len(e.Consumed)*e.Batch)*e.Batch/2 + 1) // at most what w has
		}
		for _, n := range e.Consumed {
			left -= n
		}
		d.Done = append(d.Done, e)
	}
	doc, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.restore(doc, d.position())
}

// refuse writes documents that must not be accepted.
func (s *mounted) refuse(r *rand.Rand) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	doc := []string{`{"epoch": -1}`, `{"epoch": 1, "samples": 99999999}`, `{"epo`, `nothing`, `{"epoch": 1} x`, `{"version": 1}`}[r.IntN(6)]
	if err := writeThrough(s.path("checkpoint"), []byte(doc)); !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%q was not refused: %w", doc, err)
	}
	s.done.refusals.Add(1)
	return nil
}

// moveByProgram saves and restores with lsiofs itself.
func (s *mounted) moveByProgram(r *rand.Rand) error {
	dir, err := os.MkdirTemp("", "positions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "ckpt.json")
	if err := program("checkpoint", "save", s.Dir, file); err != nil {
		return err
	}
	s.done.saves.Add(1)
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d, err := parse(b)
	if err != nil || r.IntN(2) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := program("checkpoint", "restore", file, s.Dir); err != nil {
		return err
	}
	s.now = view{s.now.number + 1, d.position()}
	s.done.restores.Add(1)
	return nil
}

// program runs lsiofs, which has to succeed.
func program(args ...string) error {
	cmd := exec.Command(lsiofs, args...)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lsiofs %q: %w: %s", args, err, out)
	}
	return nil
}
