// Package listing finds the Zarr arrays that crops are cut from, and their objects.
//
//	root ── is it a hierarchy? ── no ──► directories below it that are
//	  │ yes                                 │
//	  └──► hierarchies ◄────────────────────┘
//	          │ documents of the fields: zarr.json, or .zarray and .zattrs
//	          ▼
//	        Cube: a zarr.Cut, and of each field a table of its objects
//
// A hierarchy is a directory with zarr.json, .zgroup or .zarray, or one below which all arrays lie
// that were asked for. Where a directory has documents of both versions, version 3 counts. Nothing
// below an array is looked at but its objects. Files and directories that are no keys of an array,
// or are keys of places beyond its grid, are ignored and counted.
//
// All is read through a storage.Storage: documents are asked for by name, as listings pass over
// names that begin with a dot. Every object is listed once, when the dataset is opened: what is
// absent then consists of the fill value, and a later change shows as that of any other object. So
// whatever could hide objects is an error: links to directories that they lie in, which listings do
// not enter, pipes and the like, which they pass over, names that begin with a dot, and arrays that
// have objects by the names of another key encoding alone. What lies beside hierarchies and is none,
// or has not the arrays, is what Config.LeftOut is called for.
//
// Where nothing can be listed, as at web servers, arrays are those of the consolidated metadata or
// are named, and each object is asked for, if there are not too many.
//
// # Memory
//
// While objects are listed each takes 40 bytes, and then 24, or 32 where fewer than half of a grid
// are there. Large tables lie outside of the heap. There may be MaxObjects of them. Documents are
// bounded singly, and together by maxHeldBytes.
//
//	find.go         Find: from hierarchies to cubes
//	hierarchies.go  hierarchies, and the arrays in them
//	documents.go    metadata documents
//	objects.go      objects of arrays
//	table.go        what is kept of them
//	version.go      the version of a cube
//	leftout.go      what lies beside hierarchies
//	unlisted.go     where nothing can be listed
//	coordinates.go  arrays that say what elements stand for
//	suggest.go      what to type for a hierarchy
package listing
