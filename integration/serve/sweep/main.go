// Command sweep removes what tests have left behind: processes, mounts and directories.
//
//	go run ./integration/serve/sweep          of test programs that have ended
//	sweep -after DIR                          of DIR, once the standard input has ended
//
// Tests do this by themselves (serve.Scratch). The command is for a script that kills them, and for
// test programs of another module, which can't import package serve.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lsiofs/lsiofs/integration/serve"
)

func main() {
	after := flag.String("after", "", "sweep this directory when the standard input has ended")
	flag.Parse()
	if *after != "" {
		os.Exit(serve.Watch(*after))
	}
	for _, dir := range serve.SweepAbandoned(filepath.Join(os.TempDir(), "lsiofs-*"), "/tmp/lsiofs-*", "/var/tmp/lsiofs-*") {
		fmt.Println("swept", dir)
	}
}
