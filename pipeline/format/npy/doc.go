// Package npy finds the rows of NumPy arrays.
//
//	\x93NUMPY │ u8 major │ u8 minor │ header length: u16le in 1.0, u32le in 2.0 and 3.0
//	header: {'descr': '<f4', 'fortran_order': False, 'shape': (1000, 3, 224), } spaces \n
//	data: 1000 rows of 3·224·4 bytes, with nothing after them
//
// A record is a row: one slice along the first axis of an array in C order. The kind of a shard is
// its dtype, as written in the header, and the shape of its rows: "'<f4' (3, 224)".
//
// The specification is numpy.lib.format as of NumPy 1.24,
// https://numpy.org/doc/1.24/reference/generated/numpy.lib.format.html.
//
// The header is a Python literal. Only what NumPy writes and that page permits is accepted: a
// dictionary of exactly these keys, strings, True and False, tuples, lists, decimal numbers (below
// version 3.0 with an L, as Python 2 wrote them), and blanks anywhere. The newline at the end and
// the alignment of the data are not required; NumPy doesn't require them either. A header may have
// 1 MiB.
//
// Sizes follow from the type strings of NumPy's array interface. NumPy writes only those
// (dtype.str, and lists of fields of it), never names such as "float32". Streams have headers of
// version 1.0, in Latin-1 and below 64 KiB. An array that needs another header is refused.
package npy
