// Package server runs `lsiofs mount` as child processes, one for each server.
//
//	Start ──► indexing, filling … ──► ready ──► serving ──► ended
//	             Ready waits, Doing describes the progress    Ended is closed
//
// A child is in a separate session and outlives the driver. Until it has mounted it watches the
// pipe on which it reports its progress: if the driver dies before that, the child ends and mounts
// nothing. Once it serves, another driver finds it by the stored description of its process
// (Adopt).
//
// A child gets a separate environment, which contains the credentials; its arguments do not. Its
// log is the driver's.
//
// Each Server has one goroutine, which waits for the process through a pidfd and reaps it, and a
// second one until the child is ready. Release ends both without ending the process.
package server
