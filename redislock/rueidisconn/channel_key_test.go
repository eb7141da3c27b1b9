package rueidisconn

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// The question whether a server would answer PING leaves a key alone that has the channel's name.
func TestAnswersPingKeepsKeys(t *testing.T) {
	t.Parallel()
	made, err := Dial(testenv.Redis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	c := made.(*conn)
	for _, set := range [][]string{{"SET", "k", "v"}, {"HSET", "k", "f", "v"}, {"RPUSH", "k", "v"}} {
		do := func(words ...string) any {
			v, err := c.client.Do(t.Context(), c.client.B().Arbitrary(words...).Build()).ToAny()
			if err != nil {
				t.Fatal(words, err)
			}
			return v
		}
		do(set...)
		before := do("DUMP", "k")
		if !c.answersPing(t.Context(), c.client, "k") {
			t.Errorf("%s: the server answers", set[0])
		}
		if n := do("EXISTS", "k"); n != int64(1) || do("DUMP", "k") != before {
			t.Errorf("%s: the key has changed", set[0])
		}
		do("DEL", "k")
	}
}
