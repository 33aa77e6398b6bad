// Command sweep takes away what tests have left: processes, mounts and directories.
//
//	go run ./integration/serve/sweep          of test programs that live no more
//	sweep -after DIR                          of DIR, once the standard input has ended
//
// Tests do this by themselves (serve.Scratch). It is for a script that ends them, and for test
// programs of another module, which can't import package serve.
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
