package local

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Direct is when reads bypass the page cache (O_DIRECT).
type Direct string

const (
	// DirectAuto lets reads of at least 128 KiB bypass the page cache if it does not hold them,
	// once the listed files are larger than it can be. Such cold data is then read at twice the
	// speed for a fifth of the CPU. A dataset that fits is better read through the page cache: from
	// the second epoch on it comes from there, several times faster than from any disk.
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

// Uncached implements storage.Caps.
func (s *Storage) Uncached() (storage.Storage, error) {
	u, err := s.OpenUncached()
	if err != nil {
		return nil, err
	}
	return u, nil
}

// OpenUncached is Uncached; the result is never nil without an error.
func (s *Storage) OpenUncached() (*Storage, error) {
	direct := DirectOn
	if s.direct == DirectOff {
		direct = DirectOff
	}
	return OpenDirect(s.root, s.engine, direct)
}

// policy returns how files that are opened now are read.
func (s *Storage) policy() uring.Direct {
	switch {
	case s.direct == DirectOn:
		return uring.DirectAlways
	case s.direct == DirectAuto && s.exceedsMemory.Load():
		return uring.DirectCold
	}
	return uring.DirectNever
}
