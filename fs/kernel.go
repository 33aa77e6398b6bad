package fs

import (
	"fmt"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// kernelFacts is what this kernel can do for a mount, known once it is mounted.
type kernelFacts struct{ report atomic.Pointer[kernelReport] }

type kernelReport struct {
	Release  string   `json:"release"`
	Protocol string   `json:"fuse_protocol"`
	Lacks    []string `json:"lacks"` // in words
	// RequestsBy is how requests come: /dev/fuse or io_uring.
	RequestsBy string `json:"requests_by"`
}

func (k *kernelFacts) set(in *fuse.InitIn, ringed bool) {
	r := &kernelReport{RequestsBy: "/dev/fuse", Protocol: fmt.Sprintf("%d.%d", in.Major, in.Minor), Lacks: []string{}}
	if ringed {
		r.RequestsBy = "io_uring"
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		r.Release = unix.ByteSliceToString(u.Release[:])
	}
	if in.Flags64()&fuse.CAP_DIRECT_IO_ALLOW_MMAP == 0 {
		r.Lacks = append(r.Lacks, "shared mmap of stream files (Linux 6.6): map them privately (MAP_PRIVATE, Python: mmap.ACCESS_COPY), or read them")
	}
	if in.Flags64()&fuse.CAP_MAX_PAGES == 0 {
		r.Lacks = append(r.Lacks, "reads of more than 128 KiB (Linux 4.20): reading costs more CPU")
	}
	k.report.Store(r)
}

// get returns what is known; an empty report before the mount is complete.
func (k *kernelFacts) get() kernelReport {
	if r := k.report.Load(); r != nil {
		return *r
	}
	return kernelReport{Lacks: []string{}}
}
