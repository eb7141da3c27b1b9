package open

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// unguessable are passwords that no text has by chance.
var unguessable = []string{"Zx9-unguessable-81", "correct-horse-battery-staple", "8f!kQz2mW+"}

// words are passwords that servers and holdfast use as words.
var words = []string{"user", "a", "password", "invalid", "postgres", "disabled", "authentication", "username-password",
	"127.0.0.1", "28P01"}

// What a server says about a wrong password is the same for every password, so that nobody can
// conclude which one it is.
func TestPasswordDoesNotChangeWhatIsSaid(t *testing.T) {
	t.Parallel()
	redis := testenv.RedisACL(t, []string{"user asker on >right-0ne ~* &* +@all"})
	postgres := testenv.Postgres(t)
	admin, err := sql.Open("pgx", "postgres://postgres@"+postgres.Addr+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, s := range []string{
		`COPY (SELECT 'host all all 127.0.0.1/32 scram-sha-256') TO PROGRAM 'cat >pg_hba.conf'`,
		"SELECT pg_reload_conf()",
	} {
		if _, err := admin.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	postgresURL := "postgres://postgres:PASSWORD@" + postgres.Addr + "/postgres?sslmode=disable"
	for limit := time.Now().Add(20 * time.Second); !strings.Contains(says(t, postgresURL),
		"password authentication failed"); {
		if time.Now().After(limit) {
			t.Fatal("the server still wants no password")
		}
		time.Sleep(10 * time.Millisecond) // there is no event for the reload
	}
	for what, url := range map[string]string{
		"WRONGPASS invalid username-password":   "redis://asker:PASSWORD@" + redis.Addr,
		"password authentication failed for us": postgresURL,
	} {
		for i, password := range append(unguessable[:1:1], words...) {
			said := says(t, strings.Replace(url, "PASSWORD", password, 1))
			if i == 0 && strings.Contains(said, password) {
				t.Errorf("shows %q: %s", password, said)
			}
			if !strings.Contains(said, what) || strings.Contains(said, storeurl.Mask) {
				t.Errorf("with password %q: %s; want %q, and no mask", password, said, what)
			}
		}
	}
}

// says returns the error of a store whose password is wrong, as the command line shows it.
func says(t *testing.T, url string) string {
	t.Helper()
	s, err := Open(t.Context(), url)
	if err == nil {
		_, err = s.Inspect(t.Context(), "x")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err == nil {
		t.Fatalf("%s: no error", url)
	}
	return Scrub(err.Error(), url)
}

// A text that quotes no password stays as it is, whatever word the password is.
func TestScrubCommonPasswords(t *testing.T) {
	const url = "redis://locks-2:PASSWORD@db-2.example:6379/1"
	const text = `WRONGPASS invalid username-password pair or user is disabled. password authentication failed for user "postgres" ` +
		"(SQLSTATE 28P01) at 127.0.0.1:6379 and db-2.example:6379; allowed are redis://[user:password@]host[:port][/db]; user locks-2"
	for _, password := range append(strings.FieldsFunc(text,
		func(r rune) bool { return strings.ContainsRune(` ";.:/[]()@`, r) }),
		append(words, "db-2.example:6379", "locks-2")...) {
		if got := Scrub(text, strings.Replace(url, "PASSWORD", password, 1)); got != text {
			t.Errorf("password %q: %s", password, got)
		}
	}
}

// In the place of a password anything is masked, and a password that no text has by chance is
// masked everywhere.
func TestScrubPlaces(t *testing.T) {
	for _, password := range append(unguessable, words...) {
		for _, test := range [][2]string{
			{"dial redis://u:PASSWORD@h:1/2?db=3: no",
				"dial redis://***@h:1/2?db=3: no"},
			{"dial redis+sentinel://h/m?sentinelpassword=PASSWORD&db=3 no",
				"dial redis+sentinel://h/m?sentinelpassword=***&db=3 no"},
			{"dial postgres://h/d?x=y&listen=postgres%3A%2F%2Fu%3APASSWORD%40h: no",
				"dial postgres://h/d?x=y&listen=*** no"},
			{"ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `PASSWORD`, ",
				"ERR unknown command `HELLO`, with args beginning with: ***"},
			{"ERR unknown command 'AUTH', with args beginning with: 'u' 'PASSWORD' ",
				"ERR unknown command 'AUTH', with args beginning with: ***"},
		} {
			text, want := strings.ReplaceAll(test[0], "PASSWORD", password), test[1]
			if got := Scrub(text, "redis://u:"+password+"@h:1/2"); got != want {
				t.Errorf("password %q: %q, want %q", password, got, want)
			}
		}
	}
	for _, password := range unguessable {
		if got := Scrub("it said "+password+".", "redis://u:"+password+"@h"); got != "it said ***." {
			t.Errorf("%q", got)
		}
	}
	// The URL is masked as a whole, even if its password ends where a URL in a text would.
	if got := Scrub(`dial redis://u:x@y z'"@h/1`, `redis://u:x@y z'"@h/1`); got != "dial redis://***@h/1" {
		t.Errorf("%q", got)
	}
}
