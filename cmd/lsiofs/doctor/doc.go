// Package doctor says what of this machine works for lsiofs, and makes the report that
// is pasted into issues. It is the work of the verb doctor.
//
// A machine is looked at once and is plain data from then on; the checks are pure
// functions of it. What goes into a report passes a veil, which lets through what is
// known to be harmless: words of lsiofs itself (words.txt), counts, kinds of storage.
package doctor
