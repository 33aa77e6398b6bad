// Package listing finds the Zarr arrays that crops are cut from, and their objects.
//
//	root ── is it a hierarchy? ── no ──► directories below it that are
//	  │ yes                                 │
//	  └──► hierarchies ◄────────────────────┘
//	          │ documents of the fields: zarr.json, or .zarray and .zattrs
//	          ▼
//	        Grid: a zarr.Cut, and of each field a table of its objects
//
// A hierarchy is a directory with zarr.json, .zgroup or .zarray, or one that has all requested
// arrays below it. If a directory has documents of both versions, version 3 counts. Below an array
// only its objects are looked at. Files and directories whose names are not keys of the array, or
// are keys outside its grid, are ignored and counted.
//
// Everything is read through a storage.Storage. Documents are requested by name, because listings
// skip names that begin with a dot. Every object is listed once, when the dataset is opened: an
// object that is absent then consists of the fill value, and a later change is noticed like that of
// any other object. So anything that could hide objects is an error: links to directories of
// objects, which listings do not enter; pipes and the like, which they skip; names that begin with
// a dot; and arrays whose objects are all named in another key encoding. Config.LeftOut is called
// for files and directories that are not hierarchies, and for hierarchies without the requested
// arrays.
//
// If the storage can't list, such as a web server, the arrays are named or taken from the
// consolidated metadata, and objects are requested one by one, up to a bound.
//
// # Memory
//
// Each object takes 40 bytes while it is listed, and then 24, or 32 if less than half of the grid
// exists. Large tables are outside the heap. There may be MaxObjects objects. Each document is
// bounded, and all together by maxHeldBytes.
//
//	find.go         Find: from hierarchies to cubes
//	hierarchies.go  hierarchies, and the arrays in them
//	documents.go    metadata documents
//	objects.go      objects of arrays
//	table.go        tables of objects in memory
//	version.go      the version of a cube
//	leftout.go      files and directories that are not hierarchies
//	unlisted.go     storages that can't list
//	coordinates.go  coordinate arrays
//	suggest.go      flags to suggest for a hierarchy
package listing
