// Package cache does the work of the verb cache: it shows what the disk cache for buckets and web
// servers holds, checks it, and removes objects from it. Mounts may use the cache meanwhile.
//
//	directory ──► objects ──► Show    a line for each folder of objects
//	                     ├──► Verify  every page against its sum
//	                     └──► Clean   what no mount uses
//
// The directory's format is that of package pipeline/diskcache.
package cache
