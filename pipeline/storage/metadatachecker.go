package storage

import "context"

// MetadataChecker is implemented by storages whose objects are computed from files with a structure of
// their own, which an index pass does not see.
type MetadataChecker interface {
	// Check verifies everything that reads of an object rely on besides the data: that files have
	// the necessary sizes, and that indexes in them are plausible. An error names the damaged
	// files, or some of them if there are many.
	Check(ctx context.Context, o Object) error
}
