// Package mounts lists, makes and takes away mounts. It never looks at what is mounted: a server
// that is dead or stands still makes every look at a path below it fail or wait, and the kernel's
// own table, /proc/self/mountinfo, does not.
//
// A bind mount shows the same file system at another place. Which file system is at a place is told
// by its Device, which no two live file systems share.
package mounts
