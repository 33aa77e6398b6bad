// Package listing finds the Zarr arrays that crops are cut from, and their objects.
//
//	root ── is it a hierarchy? ── no ──► directories below it that are
//	  │ yes                                 │
//	  └──► hierarchies ◄────────────────────┘
//	          │ documents of the fields: zarr.json, or .zarray and .zattrs
//	          ▼
//	        Cube: a zarr.Cut, and of each field a table of its objects
//
// A hierarchy is a directory with zarr.json, .zgroup or .zarray; where it has both versions,
// version 3 counts. Nothing below an array is looked at but its objects. Files that are no keys
// of an array, or of places beyond its grid, are ignored and counted.
//
// All is read through a storage.Storage: documents are asked for by name, as listings pass over
// names that begin with a dot. Every object is listed once, when the dataset is opened: what is
// absent then consists of the fill value, and a later change shows as that of any other object.
//
//	find.go       hierarchies, and the cubes in them
//	documents.go  metadata documents
//	objects.go    tables of objects
//	suggest.go    what to type for a hierarchy
package listing
