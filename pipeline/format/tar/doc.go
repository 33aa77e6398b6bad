// Package tar finds the WebDataset samples of tar archives, and renames them if the equal-key rule
// requires it.
//
//	archive: member  member  …  [zeros]
//	member:  [extension headers]  header 512  data, padded to 512
//	header:  name 0+100 │ mode 100+8 │ uid 108+8 │ gid 116+8 │ size 124+12 │
//	         mtime 136+12 │ checksum 148+8 │ type 156 │ linkname 157+100 │
//	         magic 257+6 │ version 263+2 │ uname 265+32 │ gname 297+32 │
//	         devmajor 329+8 │ devminor 337+8 │ prefix 345+155 │ 500+12
//
// A sample is a maximal run of eligible members with the same key. pipeline/format/TAR.md
// defines which members are eligible and what a key is.
//
//   - Accepted are ustar, PAX (types x, X and g) and GNU (L, K, numbers in base 256) headers, old
//     headers without magic, and checksums of signed bytes.
//   - Refused are GNU sparse members, and global PAX headers that set path or size.
//
// The package has its own walker, which does not allocate per member and reads only headers.
// Specification: POSIX.1-2017 pax, GNU tar manual appendix D.
package tar
