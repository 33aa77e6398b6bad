package cgroup

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
)

// AllowedBytes returns how much memory this process may use: that of the machine, or less if a
// control group allows less. It is math.MaxInt64 if unknown.
func AllowedBytes() int64 {
	meminfo, _ := os.ReadFile("/proc/meminfo")
	return min(Meminfo(meminfo, "MemTotal"), Own().MemoryBytes())
}

// FreeBytes returns how much memory the page cache can use: what is free or can be freed, within
// the limit of the control group. It is math.MaxInt64 if unknown.
func FreeBytes() int64 {
	meminfo, _ := os.ReadFile("/proc/meminfo")
	return min(Meminfo(meminfo, "MemAvailable"), Own().MemoryBytes())
}

// Meminfo returns a number of bytes from the text of /proc/meminfo; math.MaxInt64 if it is missing.
func Meminfo(text []byte, name string) int64 {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == name+":" && fields[2] == "kB" {
			if n, err := strconv.ParseInt(fields[1], 10, 53); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}
