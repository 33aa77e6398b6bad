package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attempt is what the ranks of an attempt have logged: how much each has saved, and its steps by
// where they begin. A step that was not saved is repeated in another attempt.
type attempt struct {
	saved map[int]int
	steps map[[2]int][]string
}

// logged reads what the ranks of a job have logged, by attempt.
func (c *cluster) logged(job string) map[int]attempt {
	attempts := map[int]attempt{}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		require.NoError(c.t, err)
		return n
	}
	for _, m := range regexp.MustCompile(`(?m)^attempt (\d+) rank (\d+) (saved|trained from) (\d+)(?: on (.*))?$`).FindAllStringSubmatch(c.outputOf(job), -1) {
		a, known := attempts[number(m[1])]
		if !known {
			a = attempt{map[int]int{}, map[[2]int][]string{}}
			attempts[number(m[1])] = a
		}
		rank, at := number(m[2]), number(m[4])
		if m[3] == "saved" {
			a.saved[rank] = max(a.saved[rank], at)
		} else {
			a.steps[[2]int{rank, at}] = strings.Fields(m[5])
		}
	}
	return attempts
}

// trained returns what the attempt's ranks have trained on and saved.
func (a attempt) trained(t *testing.T) (labels []string) {
	for rank, saved := range a.saved {
		own := []string{}
		for len(own) < saved {
			step := a.steps[[2]int{rank, len(own)}]
			require.NotEmpty(t, step, "rank %d has not said what came from %d on, of %d", rank, len(own), saved)
			own = append(own, step...)
		}
		require.Len(t, own, saved)
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
