package remote

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast"
)

// Command is a command for an actor: a word and its arguments.
type Command []string

// Word returns a word of the command, or "" after its end.
func (c Command) Word(i int) string {
	if i < len(c) {
		return c[i]
	}
	return ""
}

// Number returns the number that is word i, or otherwise.
func (c Command) Number(i, otherwise int) int {
	n, err := strconv.Atoi(c.Word(i))
	if err != nil {
		return otherwise
	}
	return n
}

// Serve is the program of a side in Go: it reads commands until its standard input ends, or until
// the command "halt", and ends the process. actor returns what carries out the commands of a new
// actor, and answers with a line.
func Serve(actor func(name string) func(Command) (string, error)) {
	actors := map[string]chan Command{}
	var out sync.Mutex
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		name := words[0]
		if words[1] == "halt" {
			break
		}
		commands := actors[name]
		if commands == nil {
			commands = make(chan Command, 8)
			actors[name] = commands
			run := actor(name)
			go func() {
				for c := range commands {
					reply := answer(run(c))
					out.Lock()
					fmt.Println(name, strings.ReplaceAll(reply, "\n", " "))
					out.Unlock()
				}
			}()
		}
		commands <- words[1:]
		if words[1] == "close" {
			close(commands)
			delete(actors, name)
		}
	}
	os.Exit(0) // its locks stay taken until they expire
}

func answer(reply string, err error) string {
	switch {
	case errors.Is(err, holdfast.ErrLost):
		return "lost " + err.Error()
	case err != nil:
		return "error " + err.Error()
	}
	return reply
}
