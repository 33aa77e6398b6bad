package rings

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Lists of processors, such as 0-3,8-11.
const (
	possible = "/sys/devices/system/cpu/possible"
	online   = "/sys/devices/system/cpu/online"
)

const (
	// processorsMost bounds the threads and the memory of a mount: each processor that the machine
	// may have needs a thread and room for a reply.
	processorsMost = 128
	// A processor has workersMost threads, or on larger machines fewer, so that all together have
	// workersAll, but at least workersLeast. All register at the start: a thread takes requests
	// that the kernel queued while no thread was free only when it sends a reply, not when it is
	// added.
	workersMost, workersLeast = 64, 4
	workersAll                = 256
)

// workersOf returns how many threads each of n processors has.
func workersOf(n int) int { return min(workersMost, max(workersLeast, workersAll/n)) }

// crew returns the number of threads of each processor. One that is offline has one, because the
// kernel needs a queue for it, too.
func crew() (workers []int, err error) {
	all, err := processors(possible)
	if err != nil {
		return nil, err
	}
	if len(all) > processorsMost || all[len(all)-1] != len(all)-1 {
		return nil, fmt.Errorf("this machine may have %d processors, numbered up to %d (%s): lsiofs has rings for %d at most, without a gap", len(all), all[len(all)-1], possible, processorsMost)
	}
	now, err := processors(online)
	if err != nil {
		return nil, err
	}
	return crewOf(len(all), now), nil
}

func crewOf(all int, online []int) []int {
	workers := make([]int, all)
	for i := range workers {
		workers[i] = 1
	}
	for _, processor := range online {
		if processor < all {
			workers[processor] = workersOf(len(online))
		}
	}
	return workers
}

func sum(workers []int) (n int) {
	for _, w := range workers {
		n += w
	}
	return n
}

func processors(path string) ([]int, error) {
	list, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all, err := parseList(strings.TrimSpace(string(list)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// parseList returns the numbers in a list.
func parseList(list string) (all []int, err error) {
	for stretch := range strings.SplitSeq(list, ",") {
		first, last, more := strings.Cut(stretch, "-")
		from, err := strconv.ParseUint(first, 10, 16)
		to := from
		if err == nil && more {
			to, err = strconv.ParseUint(last, 10, 16)
		}
		if err != nil || to < from {
			return nil, fmt.Errorf("%q is no list of processors", list)
		}
		for n := from; n <= to; n++ {
			all = append(all, int(n))
		}
	}
	return all, nil
}
