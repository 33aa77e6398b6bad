// Package filesystem examines the file system that files are on: whether it answers, which reads it
// is fast at, which versions its files have, and whether a path is a regular file before it is
// opened. The storages that read files (local, fileset) share it.
//
//	path ──► Look ──► Place: kind, identity ──► FindProfile ──► storage.Profile
//	         statfs, sysfs, mountinfo           │
//	                                            └─ none stored: storage.DefaultProfile(kind)
//
// Measurements of lsiofs tune are stored for each file system in the user's cache directory. An
// Endpoint is the place of a service, whose profile is stored in the same way.
//
//	listing   Attributes.Version ─► Version      young ones: wait, look again
//	opening   OpenRegular        ─► a descriptor of a regular file
//	reading   Check              ─► unchanged, or storage.ErrChanged
//
// How far a file's attributes can be trusted depends on the file system that the file itself is on
// (uring.Traits):
//
//   - If inode numbers are not permanent, Version.Inode is 0, and is not compared.
//   - If ctime is permanent, it is part of the version that an index compares.
//   - If the kernel caches attributes for a while, CheckAsking asks the server.
//   - A file is young if its last change is so recent that the next change could get the same
//     time. Its version can't be trusted yet, so the listing waits until that time is over.
package filesystem
