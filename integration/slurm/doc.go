// Package slurm runs the examples of examples/slurm on a Slurm of its own: a controller and three
// nodes on one machine, each in namespaces of its own (network, mounts, host name), joined by a
// bridge. They are processes of the test, and go with it, and so do the namespaces.
//
//	controller (slurmctld, and who submits)   10.77.0.1   ┐
//	n1, n2, n3 (slurmd)                       10.77.0.11… ┴ br0, in the controller's network
//
// A node's /tmp is its own. All else is the machine's, as on a cluster with a shared file system.
package slurm
