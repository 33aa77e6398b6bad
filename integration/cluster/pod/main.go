// Command pod is the program in the containers of the test's own pods. It is static and needs no
// other files.
//
//	pod pause         does nothing, for a pod's sandbox
//	pod read MNT [N]  prints N records of worker 0, or all, and then waits
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
)

func main() {
	var err error
	switch os.Args[1] {
	case "pause":
		wait()
	case "read":
		err = read(os.Args[2:])
	default:
		err = fmt.Errorf("no such command: %v", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

// wait waits for a terminating signal.
func wait() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}

func read(args []string) error {
	list, err := filepath.Glob(filepath.Join(args[0], "worker-0*.jsonl"))
	if err != nil || len(list) == 0 {
		return fmt.Errorf("%s has no worker-0: %v", args[0], err)
	}
	f, err := os.Open(list[0])
	if err != nil {
		return err
	}
	defer f.Close()
	lines, most := bufio.NewScanner(f), -1
	if len(args) > 1 {
		if most, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	for n := 0; n != most && lines.Scan(); n++ {
		fmt.Println(lines.Text())
	}
	if err := lines.Err(); err != nil {
		return err
	}
	wait()
	return nil
}
