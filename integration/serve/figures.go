package serve

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// Figures are what a process holds at a moment, according to the kernel.
type Figures struct {
	MemoryBytes int // resident, without files
	PeakBytes   int // the most that was ever resident, with files
	Descriptors int
	Threads     int
	Mappings    int
}

// FiguresOf returns the figures of a running process.
func FiguresOf(pid int) (Figures, error) {
	var f Figures
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return f, err
	}
	f.MemoryBytes = sum(residents, status) << 10
	f.PeakBytes = sum(peak, status) << 10
	f.Threads = sum(threads, status)
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return f, err
	}
	f.Descriptors = len(descriptors)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for _, c := range maps {
		if c == '\n' {
			f.Mappings++
		}
	}
	return f, err
}

// MemoryOf returns the memory of a process without files: RssAnon and RssShmem, in bytes.
func MemoryOf(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return sum(residents, status) << 10, err
}

var (
	residents = regexp.MustCompile(`(?m)^Rss(?:Anon|Shmem):\s+(\d+) kB`)
	peak      = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB`)
	threads   = regexp.MustCompile(`(?m)^Threads:\s+(\d+)`)
)

// sum adds the numbers in the lines of a status that match.
func sum(lines *regexp.Regexp, status []byte) int {
	all := 0
	for _, m := range lines.FindAllSubmatch(status, -1) {
		n, _ := strconv.Atoi(string(m[1])) // it only matches digits
		all += n
	}
	return all
}
