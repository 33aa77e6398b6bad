// Command reader prints the SHA-256 of a file. It is the program in the second container
// of the container test.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

func main() {
	f, err := os.Open(os.Args[1])
	if err == nil {
		h := sha256.New()
		if _, err = io.Copy(h, f); err == nil {
			fmt.Printf("%x\n", h.Sum(nil))
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
