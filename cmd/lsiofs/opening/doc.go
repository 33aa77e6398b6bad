// Package opening opens and closes datasets for the commands. It shows how far an
// index pass is, gives errors of datasets their exit code, waits no longer than a user
// does who has pressed Ctrl-C, and says in words what was left out as damaged.
package opening
