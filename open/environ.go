package open

import (
	"os"
	"strings"
)

// Variable is the environment variable that names the store.
const Variable = "HOLDFAST_URL"

// Environ returns the environment for other programs: that of this process, but Variable has no
// password. Variable stays, so that a holdfast in such a program does not silently use another
// store: without the password, the store refuses it.
func Environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		if url, ours := strings.CutPrefix(kv, Variable+"="); ours {
			clean, ok := WithoutPassword(url)
			if !ok {
				continue
			}
			kv = Variable + "=" + clean
		}
		env = append(env, kv)
	}
	return env
}
