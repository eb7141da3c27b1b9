package open

import (
	"os"
	"strings"
)

// Variable is the environment variable that names the store.
const Variable = "HOLDFAST_URL"

// Environ is the environment for other programs: this process's, in which Variable lacks its password. Who uses holdfast
// there must not quietly lock in another place; without the password it is refused, and says so.
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
