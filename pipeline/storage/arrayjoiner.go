package storage

import "context"

// ArrayJoiner is implemented by storages whose objects consist of several files each.
type ArrayJoiner interface {
	// Join makes an object from one file for each name; List has listed the files. An error names
	// the file that can't be part of an object.
	Join(ctx context.Context, names []string, files []Object) (Object, error)
}
