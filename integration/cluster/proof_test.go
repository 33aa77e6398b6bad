package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// indexOf returns the index of a pod of an Indexed Job, from its name.
func indexOf(t *testing.T, pod string) int {
	m := regexp.MustCompile(`^[a-z]+-(\d+)-[a-z0-9]+$`).FindStringSubmatch(pod)
	require.NotNil(t, m, pod)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

// worker is what the pods of one index have logged: how much of its file counts (up to where the
// last of them saved, or began), and the steps by where they begin. A step that was not saved may
// be repeated, with the same labels.
type worker struct {
	counts int
	steps  map[int][]string
}

// workersOf reads the logs of examples/kubernetes/train.py.
func workersOf(t *testing.T, said map[string]string) map[int]*worker {
	workers := map[int]*worker{}
	for pod, text := range said {
		w := workers[indexOf(t, pod)]
		if w == nil {
			w = &worker{steps: map[int][]string{}}
			workers[indexOf(t, pod)] = w
		}
		for line := range strings.Lines(text) {
			var n int
			words := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "trained from "):
				n = number(t, words[2])
				labels := words[4:]
				if again := w.steps[n]; again != nil {
					require.Equal(t, again, labels, "pod %s, step from %d", pod, n)
				}
				w.steps[n] = labels
			case strings.HasPrefix(line, "saved "):
				w.counts = max(w.counts, number(t, words[1]))
			case strings.HasPrefix(line, "begins at "):
				w.counts = max(w.counts, number(t, words[2]))
			default:
				require.Fail(t, "unknown line", "pod %s: %s", pod, line)
			}
		}
	}
	return workers
}

func number(t *testing.T, word string) int {
	n, err := strconv.Atoi(word)
	require.NoError(t, err)
	return n
}

// trained returns what a worker has trained on and saved, in order.
func (w *worker) trained(t *testing.T) (labels []string) {
	for at := 0; at < w.counts; at = len(labels) {
		require.NotEmpty(t, w.steps[at], "nobody has said what came from %d on, of %d", at, w.counts)
		labels = append(labels, w.steps[at]...)
	}
	require.Len(t, labels, w.counts)
	return labels
}

// allOf returns what all workers have trained on and saved.
func allOf(t *testing.T, workers map[int]*worker) (labels []string) {
	for i, w := range workers {
		own := w.trained(t)
		t.Logf("worker %d: %d records", i, len(own))
		labels = append(labels, own...)
	}
	return labels
}

// requireEachOnce checks that each record occurs exactly once.
func requireEachOnce(t *testing.T, labels []string) {
	t.Helper()
	want := make([]string, 0, shards*records)
	for i := range shards {
		for k := range records {
			want = append(want, fmt.Sprintf("%d-%d", i, k))
		}
	}
	slices.Sort(want)
	slices.Sort(labels)
	require.Equal(t, want, labels)
}

// ranks is what the ranks that train one model have logged: where each pod began, and what they
// trained on in each step, by the number of samples before it.
type ranks struct {
	begins []int
	steps  map[int]map[int]string // by samples and rank
}

// ranksOf reads the logs of examples/torch/train.py.
func ranksOf(t *testing.T, said map[string]string) ranks {
	r := ranks{steps: map[int]map[int]string{}}
	for pod, text := range said {
		rank := indexOf(t, pod)
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "begins at 0 "):
				r.begins = append(r.begins, number(t, words[3]))
			case strings.HasPrefix(line, "trained on 0 "):
				at, targets := number(t, words[3]), strings.Join(words[4:], " ")
				if r.steps[at] == nil {
					r.steps[at] = map[int]string{}
				}
				if again := r.steps[at][rank]; again != "" {
					require.Equal(t, again, targets, "pod %s, after %d samples", pod, at)
				}
				r.steps[at][rank] = targets
			}
		}
	}
	slices.Sort(r.begins)
	return r
}

// trained returns what the given number of ranks have trained on in the steps between two numbers
// of samples.
func (r ranks) trained(t *testing.T, of, from, to, batch int) (targets []string) {
	for at := from; at < to; at += of * batch {
		require.Len(t, r.steps[at], of, "after %d samples", at)
		for _, own := range r.steps[at] {
			targets = append(targets, strings.Fields(own)...)
		}
	}
	require.Len(t, targets, to-from)
	return targets
}
