// Package node is CSI's Node service: it publishes volumes, and runs one server for all volumes
// with the same settings.
//
//	publish                              unpublish
//	  record the volume                    take the mounts off the target
//	  record the server, start it          remove the target
//	    record its process                 remove the volume's record
//	  wait until it serves                 last volume of its server:
//	  bind its mount to the target           stop the server, remove its group, mount point and record
//
// Each line is one change that is on disk, or in the kernel, before the next begins. If the driver
// is killed between any two of them, Open repairs the state: what is recorded but not done is done
// by kubelet's next call, and what is no longer needed is removed. A volume has a record from
// before its first change until after its last one, and a server has one while a volume's record
// names it.
//
// # A server that dies
//
// Its readers get ENOTCONN. The next publish of any of its volumes starts it again and rebinds all
// of its volumes. A running container keeps the dead mount with which it was started; one that is
// started later (also by a restart in the same pod) gets the new mount. Until then the dead mount
// stays at the target, so that an empty directory is not taken for a dataset.
//
// # A driver that is started again
//
// Servers survive the driver, and Open finds them, unless the driver's container ended with all its
// processes: then their mounts are dead. Heal restarts those that need no credentials. Credentials
// are not stored on disk. A server that had some starts at the next publish, which kubelet repeats
// periodically if the CSIDriver object has requiresRepublish.
//
// # Time
//
// A first index may take hours, but kubelet waits two minutes. So a server is started for the
// volume, not for the call: a call that ends before the server serves reports the progress, and
// kubelet calls again. NodeUnpublishVolume stops a server that is no longer needed.
//
// # Concurrency
//
// Calls for one target exclude each other: the second is refused with ABORTED, as CSI requires.
// Starts and stops of one server are serialized. Calls for different servers do not wait for each
// other.
package node
