package redislock_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// FuzzDecode: decoding any answer of a server results in a valid record, or in an error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`["F",0,0,7,0,[],[]]`,
		`["X",0,0,7,1,[["id","x",1,7,5,6,0,"info"]],[["w","s",1,0,5,6,0,""]]]`,
		`["P",5,2,9,0,[["a~8","P",2,8,1,1,1,""],["b","P",3,9,1,1,0,""]],[]]`,
		`["L",0,3,0,0,[],[]]`, `["X",0,0,-1,0,[],[]]`, `[]`, `7`, `"X"`, `["X",0,0,7,0,[[]],0]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var raw any
		if json.Unmarshal([]byte(text), &raw) != nil {
			return
		}
		v := value(raw)
		r, err := redislock.DecodeRecord("n", v)
		if err != nil {
			return
		}
		if r.Kind > driver.Latch || r.Waiting < 0 || r.Count < 0 {
			t.Errorf("%s: %+v", text, r)
		}
		for i, h := range r.Holders {
			if h.Mode < driver.Exclusive || h.Mode > driver.Permits || h.Left < 0 || h.Age < 0 || i > 0 &&
				h.Token < r.Holders[i-1].Token {
				t.Errorf("%s: %+v", text, r)
			}
		}
	})
}

func value(raw any) redislock.Value {
	switch raw := raw.(type) {
	case float64:
		return redislock.Value{Kind: redislock.Int, Int: int64(raw)}
	case string:
		return redislock.Value{Kind: redislock.Text, Text: raw}
	case []any:
		v := redislock.Value{Kind: redislock.List}
		for _, r := range raw {
			v.List = append(v.List, value(r))
		}
		return v
	}
	return redislock.Value{}
}

// FuzzMessage: whatever arrives on a session's channel, the waiter receives one grant with a larger
// token than it knows, or asks the store.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{"id 8", "id 7", "id 0", "id 9999999999999999", "id 8 123", "id c 1 by", "id  8",
		"other 8", "", " ", "id", "id -1", "id 18446744073709551616"} {
		f.Add(seed, "id 9")
		f.Add("id 8", seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		const last = 7
		pushed, ok := redislock.Deliver("id", last, first, second)
		switch {
		case pushed == 0:
		case !ok || pushed <= last || pushed > uint64(time.Now().Add(25*time.Hour).UnixMicro()):
			t.Errorf("%q, %q: received %d", first, second, pushed)
		case first != fmt.Sprintf("id %d", pushed) && second != fmt.Sprintf("id %d", pushed) &&
			!strings.Contains(first+second, fmt.Sprint(pushed)):
			t.Errorf("%q, %q: received %d, which was not sent", first, second, pushed)
		}
	})
}

// FuzzServerTexts: any answer to INFO and to CLUSTER NODES, and any error reply, is read without
// harm.
func FuzzServerTexts(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\n", "a h:1@2 myself,master - 0 0 1 connected 0-5 [6->-b] [7-<-c]\n",
		"NOPERM this user has no permissions")
	f.Add(":", "a b myself d e f g h [",
		"ERR Error running script (call to f_x): @user_script:1: -READONLY You can't write")
	f.Fuzz(func(t *testing.T, info, nodes, reply string) {
		redislock.ReadServerTexts(info, nodes)
		err := redislock.ServerError(reply, errors.New("the client's"), false)
		if !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrUnavailable) &&
			!errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%q: %v", reply, err)
		}
	})
}
