package open

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// FuzzRedact: no text that quotes a URL shows its password, and a URL for commands has none.
func FuzzRedact(f *testing.F) {
	const password = "Secretw0rd-1"
	for _, raw := range []string{
		"redis://u:Secretw0rd-1@h:1/2?db=3", "redis+sentinel://h1,h2/m?sentinelpassword=Secretw0rd-1&db=3",
		"postgres://u:Secretw0rd-1@h1,h2:5/d?sslmode=x",
		"postgres://h/d?listen=postgres%3A%2F%2Fu%3ASecretw0rd-1%40h", "redis://:Secretw0rd-1%zz@[::1",
		"no:p://user:Secretw0rd-1@h", "redis://u:a@b:Secretw0rd-1@h", "://:Secretw0rd-1@", "/://:Secretw0rd-1@",
	} {
		f.Add(raw, "dial ", ": no such host")
		f.Add(raw, "'", "' \n\"")
	}
	f.Fuzz(func(t *testing.T, raw, before, after string) {
		list := secrets(raw)
		isPart := slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, password) })
		if strings.Count(raw, password) != 1 || !isPart || strings.Contains(before+after, password) {
			return
		}
		texts := []string{before + raw + after}
		if slices.Contains(list, password) {
			texts = append(texts, before+password+after)
		}
		for _, text := range texts {
			if got := Scrub(text, raw); strings.Contains(got, password) {
				t.Errorf("URL %q: %q becomes %q", raw, text, got)
			}
		}
		if clean, ok := WithoutPassword(raw); ok && strings.Contains(clean, password) {
			t.Errorf("%q without its password is %q", raw, clean)
		}
	})
}

// FuzzQuorum: any URL is accepted with its servers, or refused without showing its password.
func FuzzQuorum(f *testing.F) {
	for _, raw := range []string{
		"redis+quorum://u:secretword@a,b,c?quarantine=1m&prefix=x:", "rediss+quorum://u:secretword@a:1,[::1],c:3/0",
		"redis+quorum://u:secretword@a,a,b",
		"redis+quorum://u:secretword@a,b,c/1?x", "redis+quorum://u:secretword%zz@a,b,c", "redis+quorum://,,", "redis+quorum:",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := quorumOf(raw, nil)
		switch {
		case err != nil && !errors.Is(err, driver.ErrInvalid):
			t.Errorf("%q: %v; want ErrInvalid", raw, err)
		case err != nil && strings.Contains(raw, ":secretword@") && strings.Count(raw, "secretword") == 1 &&
			strings.Contains(err.Error(), "secretword"):
			t.Errorf("%q: %v", raw, err)
		case err == nil && (len(q.servers) < 3 || q.place == "" || strings.Contains(q.place, "@")):
			t.Errorf("%q: %+v", raw, q)
		}
	})
}
