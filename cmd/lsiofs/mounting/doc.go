// Package mounting does the work of the verbs mount and umount: it mounts a dataset and
// serves it until it is unmounted.
//
//	Run     in this process
//	Daemon  in a process of its own, detached
//	Child   in a process of its own, which ends with this one (demo, bench)
//
// A Reporter is told how the mount starts and ends. It informs a person, a parent
// process that waits on a pipe, or the service manager. A process that serves a mount
// must not read from it: it could wait for itself.
package mounting
