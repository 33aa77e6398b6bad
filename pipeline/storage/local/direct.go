package local

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Direct says when reads bypass the page cache (O_DIRECT).
type Direct string

const (
	// DirectAuto lets reads of 128 KiB and more bypass the page cache if it does not
	// hold them, once the listed files are larger than it can be. Such cold data then
	// comes at twice the speed for a fifth of the CPU. A dataset that fits is better
	// read through the page cache: from the second epoch on it comes from there, several
	// times faster than from any disk.
	DirectAuto Direct = "auto"
	DirectOn   Direct = "on"  // all reads, if the file system permits it
	DirectOff  Direct = "off" // none
)

func (d Direct) check() error {
	switch d {
	case DirectAuto, DirectOn, DirectOff:
		return nil
	}
	return fmt.Errorf("direct reads %q are unknown: use %s, %s or %s", d, DirectAuto, DirectOn, DirectOff)
}

// Uncached implements storage.Uncached.
func (s *Storage) Uncached() (storage.Storage, error) {
	direct := DirectOn
	if s.direct == DirectOff {
		direct = DirectOff
	}
	u, err := OpenDirect(s.root, s.engine, direct)
	if err != nil {
		return nil, err
	}
	return u, nil
}

// policy is how files that are opened now are read.
func (s *Storage) policy() uring.Direct {
	switch {
	case s.direct == DirectOn:
		return uring.DirectAlways
	case s.direct == DirectAuto && s.exceedsMemory.Load():
		return uring.DirectCold
	}
	return uring.DirectNever
}

// cacheableBytes is how much the page cache can hold: memory that is free or
// can be freed, within the limit of the control group; without bound where the
// kernel does not tell.
func cacheableBytes() int64 {
	meminfo, _ := os.ReadFile("/proc/meminfo")
	n := availableBytes(meminfo)
	group, _ := os.ReadFile("/proc/self/cgroup")
	if path, ok := strings.CutPrefix(strings.TrimSpace(string(group)), "0::"); ok {
		limit, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "memory.max"))
		if err == nil {
			n = min(n, limitBytes(limit))
		}
	}
	return n
}

// availableBytes finds MemAvailable in /proc/meminfo.
func availableBytes(meminfo []byte) int64 {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			if n, err := strconv.ParseInt(fields[1], 10, 53); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

// limitBytes reads a control group's memory.max: a number, or "max".
func limitBytes(text []byte) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}
