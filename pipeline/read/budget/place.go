package budget

const (
	// PageBytes is the size of a page of memory, and of a file.
	PageBytes = 4096
	// AlignFromBytes is how large a piece is that is read from the beginning of a
	// page to the end of one: into memory that is aligned as well, a read that
	// bypasses the page cache then needs no copy.
	AlignFromBytes = 64 << 10
)

// RoundToPages is the least number of whole pages, in bytes, that hold n bytes.
func RoundToPages(n int64) int64 { return (n + PageBytes - 1) &^ (PageBytes - 1) }
