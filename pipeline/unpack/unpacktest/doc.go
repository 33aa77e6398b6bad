// Package unpacktest is the suite that every format passes, with every codec:
// Suite.Run. A format brings sound shards, a way to draw random ones, and a
// deliberately naive parser of whole files to agree with.
package unpacktest
