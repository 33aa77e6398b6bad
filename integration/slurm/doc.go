// Package slurm tests examples/slurm on a Slurm cluster of its own: a controller and three nodes on
// one machine, each in its own namespaces (network, mounts, host name), joined by a bridge. They
// are processes of the test and end with it, and so do the namespaces.
//
//	controller (slurmctld, and users)         10.77.0.1   ┐
//	n1, n2, n3 (slurmd)                       10.77.0.11… ┴ br0, in the controller's network
//
// Each node has its own /tmp. Everything else is the machine's, as on a cluster with a shared file
// system.
package slurm
