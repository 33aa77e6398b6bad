// Package volume turns what a pod says about its volume into what `lsiofs mount` is called
// with. It is pure: it reads no file, looks at no clock and knows neither gRPC nor processes.
//
//	volumeAttributes ─┐                        ┌─ Args         flags of mount, sorted
//	                  ├─ Parse(…, Policy) ──►  ├─ Dataset      its positional argument
//	Secret's keys   ──┘                        ├─ Environment  credentials, of the child alone
//	                                           ├─ Paths        of this node, to be resolved and checked again
//	                                           └─ Writable     whether the pod may write checkpoint
//
// # Attributes
//
// An attribute's name is that of mount's flag without the dashes. Names lists them all; every
// other name is refused. Values are mount's own: it validates them, and its words come back in
// the pod's event. What is given several times on a command line (mix, array, select) is one value
// with a line for each.
//
// Flags of mount that are no attributes are in leftOut, each with its reason, which a refusal
// says. A test compares both lists with `lsiofs mount --help`.
//
// # Paths
//
// A dataset that is not at a service, run, resume, snapshot, crops and ca-file are absolute paths of
// the node. Policy says which a pod may name. Nobody may name kubelet's
// directory, which holds the secrets of all pods, nor one above it. A path is checked twice: as it
// is written, here, and with its links resolved, by the caller. Links inside of a
// dataset are followed by the server: whoever may write to an allowed directory can make it read
// whatever the driver's container holds.
//
// # Sharing
//
// Volumes whose Key is equal share a server. The key is a keyed hash of the settings and the
// credentials, so that it tells nothing of them; Writable is no part of it, as it is not the
// server's but the pod's mount that is read-only.
package volume
