// Package mounts lists, makes and removes mounts. It never looks at paths inside a mount: if the
// server is dead or stopped, every access below it fails or blocks, but the kernel's own table,
// /proc/self/mountinfo, does not.
//
// A bind mount shows the same file system at another place. A file system is identified by its
// Device, which no two live file systems share.
package mounts
