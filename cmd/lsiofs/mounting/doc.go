// Package mounting mounts a dataset and serves it until it is unmounted. It is what
// the verbs mount and umount do once their flags are read.
//
// A mount runs in this process (Run), or in a process of its own: detached (Daemon), or
// as a child that ends with this one (Child), as demo and bench have it. How a mount
// comes up and goes is told to a Reporter: to a person, to a parent that waits on a
// pipe, to the service manager. A process that has mounted must not read from its own
// mount: it could wait for itself.
package mounting
