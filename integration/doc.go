// Package integration tests the whole program from outside: real mounts in child
// processes, real client programs, faults, and streams compared with a second
// implementation of the order in Python (reference/). It has only tests;
// integration/check runs them. The packages serve, reference and backing hold what it
// shares with the soak (soak/) and the hunt (hunt/); killing kills a program between two of its
// system calls.
//
//	test process ──starts──► server (lsiofs mount) ──► mount ◄──read── client programs
//	      └── compares what they read with the reference
//
// These rules keep a broken mount from hanging a test run for ever:
//
//   - The server is always another process than its readers. A watchdog kills it when a test
//     takes too long, and the kernel then wakes every reader.
//   - Every client program runs with a time limit.
//   - A mount, a process or a temporary file that is left over at the end fails the run.
package integration
