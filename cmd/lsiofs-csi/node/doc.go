// Package node is CSI's Node service: it publishes volumes, and keeps one server for all of them
// that ask for the same.
//
//	publish                              unpublish
//	  record the volume                    take the mounts off the target
//	  record the server, start it          remove the target
//	    record its process                 remove the volume's record
//	  wait until it serves                 last volume of its server:
//	  bind its mount to the target           stop the server, remove its group, mount point and record
//
// Each arrow is one change that is on disk, or in the kernel, before the next begins. A driver that
// is killed between any two leaves a state that Open mends: what is recorded but not done is
// done by kubelet's next call, and what nobody asks for any more is taken away. A volume has a
// record from before its first change until after its last one, and a server has one while a
// volume's record names it.
//
// # A server that dies
//
// Its readers get ENOTCONN. The next publish of any of its volumes starts it again and
// binds all of its volumes anew. A container that already runs keeps the mount that it was started with,
// dead; one that is started later (a restart in the same pod, too) gets the new one. Until then the dead mount
// stays at the target, so that nobody takes an empty directory for a dataset.
//
// # A driver that is started again
//
// Servers live on without it, and Open finds them, unless the driver's container ended, and all
// its processes with it: then their mounts are dead. Heal starts those again
// that need no credentials. Credentials are on no disk; a server that had some starts at the next publish, which
// kubelet makes from time to time where the CSIDriver object says requiresRepublish.
//
// # Time
//
// A first index may take hours, and kubelet waits two minutes. So a server is started for the
// volume, not for the call: a call that ends before the server serves says how far it is, and kubelet
// calls again. NodeUnpublishVolume stops a server that nobody waits for any more.
//
// # Concurrency
//
// Calls for one target exclude each other: the second is refused with ABORTED, as CSI says. Starts and stops of one
// server take turns. Calls for different servers do not wait for each other.
package node
