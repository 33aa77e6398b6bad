// Package mounting does the work of the verbs mount and umount: it mounts a dataset and serves it
// until it is unmounted.
//
//	Run     in this process
//	Daemon  in a separate, detached process
//	Child   in a separate process, which ends with this one (demo, bench)
//
// A Reporter receives the events of a mount's start and end. It informs the user, a parent process
// that waits on a pipe, or the service manager. A process that serves a mount must not read from
// it, because it could wait for itself.
package mounting
