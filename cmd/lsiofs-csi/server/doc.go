// Package server runs `lsiofs mount` as child processes, one a server.
//
//	Start ──► indexing, filling … ──► ready ──► serving ──► ended
//	             Ready waits, Doing says how far it is        Ended is closed
//
// A child is in a session of its own and outlives the driver. Until it has mounted it
// watches the pipe on which it tells how it comes up: when the driver dies before that, the child
// ends, and mounts nothing. Once it serves, another driver finds it by what is stored of its
// process (Adopt).
//
// A child gets an environment of its own, of which the credentials are a part, and nothing of them
// in its arguments. Its log is the driver's.
//
// Each Server has one goroutine, which waits for the process by a pidfd and reaps it, and, until the
// child is ready, one more. Release ends both without ending the process.
package server
