// Command bench checks the performance that lsiofs promises, and makes datasets to measure with. It
// is for developers of lsiofs; users have lsiofs bench DATASET.
//
//	go run ./integration/bench --check
//	go run ./integration/bench --check --only tar,jsonl --dir /data/bench --json > check.json
//	go run ./integration/bench --make tar --records 56000 --bytes 12500 /data/bench-tar
//	go run ./integration/bench --make zarr --lz4 --shape 512,1024,1024 /data/bench.zarr
//
// Package gate is the command, with what is measured only here; cmd/lsiofs/bench measures a dataset,
// as lsiofs bench does. peers.py and the other programs here compare lsiofs with other loaders.
package main

import "github.com/lsiofs/lsiofs/integration/bench/gate"

func main() { gate.Main() }
