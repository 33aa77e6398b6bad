package diskcache

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// proofs are notes that all pages of an object match their sums, so that a mount need not compare
// them again. A note is an extended attribute of the .sums file, and names the version of the .data
// file that was compared and the boot of the machine:
//
//	user.lsiofs.checked   XXH3-128 of "1 <boot ID> <inode> <bytes> <mtime> <ctime>"
//
// Hashed, it fits into the inodes of ext4, where it takes no block.
//
// The kernel sets the change time (ctime) at each write, and a program can't set it back. So as long
// as the version is the same, nothing was written since, and the file is as safe as any that is read
// without sums: what a disk itself changes goes unnoticed until the machine restarts. Then
// everything is compared once more, because a crash may have lost what was written last.
//
// That is certain only on file systems that no other machine and no other program writes to
// (uring.Traits.Watched). On others, also those of unknown types, another machine may have changed
// or dropped pages while this kernel still has the attributes of before. There are no notes there:
// each mount compares the pages, and finds out.
//
// It is a plain value.
type proofs struct {
	boot string // "": there are none
}

const (
	proofName    = "user.lsiofs.checked"
	proofBytes   = 16
	bootIDSource = "/proc/sys/kernel/random/boot_id"
)

func newProofs() proofs {
	b, err := os.ReadFile(bootIDSource)
	if err != nil {
		return proofs{}
	}
	return proofs{boot: strings.TrimSpace(string(b))}
}

// possible reports whether there can be notes about an object's files.
func (p proofs) possible(files *pair) bool {
	return p.boot != "" && uring.TraitsOf(files.data.FD()).Watched
}

// of returns the note for a version, nil if the version does not tell each change.
func (p proofs) of(file storage.Object) []byte {
	v := file.Version
	if v.Inode == 0 || v.ModTimeNanos == 0 || v.ChangeTimeNanos == 0 {
		return nil
	}
	sum := xxh3.HashString128(fmt.Sprintf("1 %s %d %d %d %d", p.boot, v.Inode, file.SizeBytes, v.ModTimeNanos, v.ChangeTimeNanos)).Bytes()
	return sum[:]
}

// has reports whether all pages of the file were checked.
func (p proofs) has(files *pair, file storage.Object) bool {
	want := p.of(file)
	if want == nil || !p.possible(files) {
		return false
	}
	var b [proofBytes]byte
	n, err := unix.Fgetxattr(files.sums.FD(), proofName, b[:])
	return err == nil && bytes.Equal(b[:n], want)
}

// put notes that all pages of the file were checked, each after its version was noted. Where there
// are no notes, or no extended attributes, it does nothing.
func (p proofs) put(files *pair, file storage.Object) {
	if note := p.of(file); note != nil && p.possible(files) {
		_ = unix.Fsetxattr(files.sums.FD(), proofName, note, 0) // without it, they are checked again
	}
}
