package budget

const (
	// PageBytes is the size of a page of memory, and of a file.
	PageBytes = 4096
	// AlignFromBytes is the minimum size of pieces that are read in whole pages: into memory that
	// is aligned as well, a read that bypasses the page cache then needs no copy.
	AlignFromBytes = 64 << 10
)

// RoundToPages rounds n up to whole pages, in bytes.
func RoundToPages(n int64) int64 { return (n + PageBytes - 1) &^ (PageBytes - 1) }
