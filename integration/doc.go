// Package integration tests the whole program from outside: real mounts in child processes, real
// client programs, faults, and streams compared with a second implementation of the order in Python
// (reference/). It has only tests; integration/check runs them. The packages serve, reference and
// backing hold what it shares with the soak (soak/) and the hunt (hunt/); killing kills a program
// between two of its system calls.
//
//	test process ──starts──► server (lsiofs mount) ──► mount ◄──read── client programs
//	      └── compares what they read with the reference
//
// These rules keep a broken mount from hanging a test run forever:
//
//   - The server and its readers are always different processes. A watchdog kills the server when a
//     test takes too long, and the kernel then wakes every reader.
//   - Every client program runs with a time limit.
//   - A mount, a process or a temporary file that is left over at the end fails the run.
//
// These rules keep the gate (integration/check, .ci/run) fast, and red only for a reason:
//
//   - The same commit always has the same outcome. Tests draw from constants, from serve.Seed or
//     from a flag whose default is serve.DefaultSeed; TestTestsUseOnlyConstantSeeds refuses
//     everything else. New seeds are for nightly runs (LSIOFS_SEED, RAPID_SEED). What they find
//     becomes a case: a seed in a table, or a file of rapid's in testdata/rapid.
//   - Nothing waits for real time for longer than a second in a test of tier newcomer, or five in
//     tier ci. Time is testing/synctest's, or the test waits for a condition, with a limit of
//     minutes that no working program comes near. A test that waits for a process also ends its
//     wait when the process ends (serve.Until).
//   - A unit test comes first. A test here shows what no unit test can, and its comment explains
//     what.
//   - A unit test takes at most 1 CPU second, a test here 3, a package 10. A test that takes more,
//     or needs compilers, linters, containers, browsers or other people's servers, begins with
//     serve.Tier(t, serve.CI). One that takes minutes, or shows something only by many draws,
//     begins with serve.Tier(t, serve.Night).
//   - A test that changes or counts something of the whole machine (mount namespaces, containers,
//     control groups, the page cache) calls serve.Alone(t) next.
//   - TMPDIR may be long, on another file system, and closed to other users: t.TempDir is for
//     files, and a directory of the test's own in /tmp for sockets and for other users.
//   - A red test is not run again until it is green: its reason is found first.
package integration
