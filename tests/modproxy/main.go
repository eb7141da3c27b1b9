// Command modproxy writes this tree's modules as a module proxy in a folder, as they would be after
// a release: for tests of "go install" and "go mod tidy" before there is a tag.
//
//	modproxy [-root ROOT] DIR VERSION
//
// The modules have the files that git tracks or would track. The requirements among them become
// VERSION.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/holdfast-lock/holdfast/tests/internal/modproxy"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: modproxy [-root ROOT] DIR VERSION")
		os.Exit(2)
	}
	if err := modproxy.Write(*root, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}
