// Package doctor does the work of the verb doctor. It checks whether this machine can run lsiofs,
// and writes a report that users can paste into issues.
//
//	machine ──looked at once──► plain data ──► checks ──► findings
//	                                      └──► redactor ──► report
//
// The checks are pure functions of the data. The redactor lets only text pass that is known
// to reveal nothing: words of lsiofs itself (words.txt), counts, kinds of storage.
package doctor
