package open

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestQuorumPlace(t *testing.T) {
	for _, same := range [][]string{
		{"redis+quorum://a,b,c", "REDIS+QUORUM://u:p@C:6379,b,A/0?quarantine=1m", "redis+quorum://a,b,c/00?prefix=hfq:",
			"rediss+quorum://a,b,c/?ca=/x"},
		{"redis+quorum://a,b,c?prefix=x:"},
		{"redis+quorum://a,b,d"},
		{"redis+quorum://a,b,c,[::1]:7,e"},
	} {
		first, err := quorumOf(same[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, url := range same {
			q, err := quorumOf(url, nil)
			if err != nil || q.place != first.place || strings.Contains(q.place, "p@") {
				t.Errorf("%s: %s, %v, but %s: %s", url, q.place, err, same[0], first.place)
			}
		}
	}
	a, _ := quorumOf("redis+quorum://a,b,c", nil)
	b, _ := quorumOf("redis+quorum://a,b,d", nil)
	c, _ := quorumOf("redis+quorum://a,b,c?prefix=x:", nil)
	if a.place == b.place || a.place == c.place {
		t.Error("two quorums with one place")
	}
}

func TestQuorumRefusesNonsense(t *testing.T) {
	const canary = "s3cr3t"
	for _, url := range []string{
		"redis+quorum://", "redis+quorum:a,b,c", "redis+quorum://a", "redis+quorum://a,b", "redis+quorum://a,b,",
		"redis+quorum://a,b,b:6379",
		"redis+quorum://a,b,c,d,e,f,g,h,i,j", "redis+quorum://u:" + canary + "@a,b,c:port",
		"redis+quorum://u:" + canary + "@a,b,c/x",
		"redis+quorum://u:" + canary + "@a,b,c?quarantine=1", "redis+quorum://u:" + canary + "@a,b,c?quarantine=1ms",
		"redis+quorum://u:" + canary + "@a,b,c?quarantine=100h",
		"redis+quorum://u:" + canary + "@a,b,c?x=1", "redis+quorum://u:" + canary + "@a,b,c?ca=x",
		"redis+quorum://u:" + canary + "@a,b,c?prefix=a&prefix=b",
		"redis+quorum://u:" + canary + "%zz@a,b,c", "redis+quorum://a,b,c#f", "redis+quorum://a,b,c/1",
		"redis+quorum://a,b,c?prefix={x}", "redis+quorum://a,b,c?quarantine=1m&quarantine=1m",
		"redis+quorum://u:" + canary + "/x@a,b,c",
	} {
		s, err := Open(t.Context(), url)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v %v; want ErrInvalid", url, s, err)
		} else if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "allowed are") &&
			!strings.HasSuffix(err.Error(), "did you mean redis+quorum://a,b,c?") {
			t.Errorf("%q: %v", url, err)
		}
	}
}
