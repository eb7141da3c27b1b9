// Command holdfast runs a command under a distributed lock, and shows who holds what.
//
//	holdfast run deploy/prod -- ./deploy.sh
//
// Without a server it keeps its locks in one file of each user; --store or HOLDFAST_URL choose
// another store. See "holdfast help".
package main

import (
	"os"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
