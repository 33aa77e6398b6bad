// Command copier writes a file to stdout, with one read.
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run reads through the system call itself: os.File reads again after EINTR.
func run(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return err
	}
	all := make([]byte, info.Size())
	n, err := syscall.Read(fd, all)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(all[:n])
	return err
}
