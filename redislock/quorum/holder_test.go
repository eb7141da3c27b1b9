package quorum

import (
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// The holder that a refused request learns has the token that most servers know, whichever server
// comes first: a slow one may have given a token of its own.
func TestHolderInTheWay(t *testing.T) {
	for _, c := range []struct {
		tokens []uint64 // of the same holder, by server; 0: no answer
		want   uint64
	}{
		{[]uint64{9, 7, 7, 0, 0}, 7},
		{[]uint64{7, 9, 7, 0, 0}, 7},
		{[]uint64{9, 7, 7, 7, 0}, 7},
		{[]uint64{0, 0, 9, 9, 7}, 9},
	} {
		r := &request{need: 3}
		for _, token := range c.tokens {
			v := vote{}
			if token != 0 {
				v.reply.Holder = &driver.Holder{ID: "a", Token: token}
			}
			r.votes = append(r.votes, v)
		}
		if h, n := r.inTheWay(); h == nil || h.Token != c.want || n != 3 && n != 4 {
			t.Errorf("%v: %+v of %d servers; want token %d", c.tokens, h, n, c.want)
		}
	}
}
