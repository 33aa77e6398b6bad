// Package volume turns a pod's description of its volume into the arguments of `lsiofs mount`. It
// is pure: it reads no file and no clock, and does not depend on gRPC or processes.
//
//	volumeAttributes ─┐                        ┌─ Args         flags of mount, sorted
//	                  ├─ Parse(…, Policy) ──►  ├─ Dataset      its positional argument
//	Secret's keys   ──┘                        ├─ Environment  credentials, of the child alone
//	                                           ├─ Paths        of this node, to be resolved and checked again
//	                                           └─ Writable     whether the pod may write checkpoint
//
// # Attributes
//
// An attribute has the name of mount's flag without the dashes. Names lists them all; every other
// name is refused. Values are mount's own: it validates them, and its messages appear in the pod's
// event. A flag that is repeated on a command line (mix, array, select) is one value with one line
// for each.
//
// Flags of mount that are not attributes are in leftOut, each with its reason, which a refusal
// contains. A test compares both lists with `lsiofs mount --help`.
//
// # Paths
//
// A dataset that is not at a service, run, resume, snapshot, crops and ca-file are absolute paths
// of the node. Policy determines which of them a pod may name. No pod may name kubelet's directory,
// which holds the secrets of all pods, nor one above it. A path is checked twice: as written, here,
// and with its links resolved, by the caller. Links inside a dataset are followed by the server, so
// anyone who may write to an allowed directory can make it read whatever the driver's container
// holds.
//
// # Sharing
//
// Volumes with equal Keys share a server. The key is a keyed hash of the settings and the
// credentials, so that it reveals nothing about them. Writable is not part of it, because not the
// server but the pod's mount is read-only.
package volume
