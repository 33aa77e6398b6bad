// Package cgroup reads the limits of the control groups of this process, in versions 1 and 2.
//
// A process may be in several hierarchies at once, and the limits of all groups above its own apply
// too. In a container the groups above may not be visible. Version 1 still reports their limits
// (memory.stat, hierarchical_memory_limit); version 2 does not.
package cgroup

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Groups has the directories of a process's groups, from its own up to the root of the hierarchy,
// as far as that is mounted here. A missing hierarchy has none.
type Groups struct {
	unified []string // version 2
	memory  []string // the memory controller of version 1
}

// Own returns the groups of this process.
func Own() Groups { return at("/") }

// at is Own below a directory that contains proc and sys.
func at(root string) Groups {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return Groups{}
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return Groups{}
	}
	var g Groups
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			g.unified = upwards(root, string(mounts), "cgroup2", "", f[2])
		case lists(f[1], "memory"):
			g.memory = upwards(root, string(mounts), "cgroup", "memory", f[2])
		}
	}
	return g
}

// upwards returns the directories from the group at path up to where its hierarchy is mounted.
func upwards(root, mounts, kind, controller, path string) (dirs []string) {
	for line := range strings.Lines(mounts) {
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 || r[0] != kind || controller != "" && !lists(r[2], controller) {
			continue
		}
		// The root of the mount may itself be a group: in a container it is the process's own.
		below, err := filepath.Rel(l[3], path)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			below = "."
		}
		top := filepath.Join(root, l[4])
		for dir := filepath.Join(top, below); ; dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == top || len(dir) <= len(top) {
				return dirs
			}
		}
	}
	return nil
}

// lists reports whether a comma-separated list contains a name.
func lists(list, name string) bool { return strings.Contains(","+list+",", ","+name+",") }

// MemoryBytes returns how much memory the groups allow: the lowest limit on the way up, or
// math.MaxInt64 if there is none.
func (g Groups) MemoryBytes() int64 {
	limit := int64(math.MaxInt64)
	for _, dir := range g.unified {
		limit = min(limit, number(filepath.Join(dir, "memory.max")))
	}
	for _, dir := range g.memory {
		limit = min(limit, number(filepath.Join(dir, "memory.limit_in_bytes")))
	}
	if len(g.memory) > 0 {
		stat, _ := os.ReadFile(filepath.Join(g.memory[0], "memory.stat"))
		for line := range strings.Lines(string(stat)) {
			if text, found := strings.CutPrefix(line, "hierarchical_memory_limit "); found {
				limit = min(limit, parse(text))
			}
		}
	}
	if limit >= unlimited {
		return math.MaxInt64
	}
	return limit
}

// unlimited is slightly below the value of version 1 without a limit: 2⁶³ less a page.
const unlimited = math.MaxInt64 &^ (1<<20 - 1)

// number reads a file with one number. It returns math.MaxInt64 if that can't be read, or is "max".
func number(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return math.MaxInt64
	}
	return parse(string(text))
}

func parse(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return math.MaxInt64
	}
	return n
}

// files are the limits of version 2 that are relevant to lsiofs.
var files = []string{"cpu.max", "memory.high", "memory.max", "memory.swap.max", "pids.max"}

// Limits returns the limits by their names in version 2: for numbers the lowest on the way up,
// otherwise the innermost. memory.max includes the limit of version 1.
func (g Groups) Limits() map[string]string {
	limits := map[string]string{}
	for _, dir := range g.unified {
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(dir, name))
			limit := strings.TrimSpace(string(text))
			if err != nil || limit == "" || strings.HasPrefix(limit, "max") || strings.Trim(limit, "0123456789 ") != "" {
				continue
			}
			n, err := strconv.ParseUint(limit, 10, 64)
			old, parseErr := strconv.ParseUint(limits[name], 10, 64)
			if _, there := limits[name]; !there || err == nil && parseErr == nil && n < old {
				limits[name] = limit
			}
		}
	}
	if n := g.MemoryBytes(); n < math.MaxInt64 {
		limits["memory.max"] = strconv.FormatInt(n, 10)
	}
	return limits
}

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
