// Package doctor does the work of the verb doctor. It checks whether this machine can run lsiofs,
// and writes a report that users can paste into issues.
//
//	machine ──looked at once──► plain data ──► checks ──► findings
//	                                      └──► veil ──► report
//
// The checks are pure functions of the data. The veil lets only text into the report that is known
// to reveal nothing: words of lsiofs itself (words.txt), counts, kinds of storage.
package doctor
