package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// passworded returns the URL of a store whose user locker has the password canary, by the kind of
// store.
var passworded = map[string]func(t *testing.T, b *bench) (url string){
	"redis": func(t *testing.T, _ *bench) string {
		return "redis://locker:" + canary + "@" + lockerRedis(t).Addr
	},
	"mysql": func(t *testing.T, b *bench) string {
		s := mariaDB(t)
		own := database(t, s)
		s.Exec("CREATE USER "+own+"@'%' IDENTIFIED BY '"+canary+"'", "GRANT ALL ON "+own+".* TO "+own+"@'%'")
		url := mySQLURL(s.Addr, own+":"+canary, own)
		b.at(url).want(0, "init")
		return url
	},
	"zookeeper": func(t *testing.T, _ *bench) string {
		return strings.Replace(zooKeeperURL(t), "://", "://locker:"+canary+"@", 1) + "?acl=private"
	},
}

// A holdfast inside a command under a lock, and one inside that, have the password of HOLDFAST_URL,
// though no variable has it. It lasts as long as the outer command, and is for that store only.
func TestNestedPassword(t *testing.T) {
	for name, url := range passworded {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			full := url(t, b)
			b = b.at(full)
			clean := strings.Replace(full, ":"+canary, "", 1)
			out, stderr := b.want(0, "run", "a", "--", "sh", "-c", "env; echo $HOLDFAST_SECRETS >$D/secrets; $H config; "+
				"$H run -n b -- sh -c 'env; exec $H elect c -- $H run -n a -- true'; echo busy $?; "+
				"$H run -n a -- true; echo busy $?")
			if n := strings.Count(out, "HOLDFAST_URL="+clean+"\n"); n != 2 || strings.Count(out, "busy 75\n") != 2 {
				t.Errorf("%d times %s in %s%s", n, clean, out, stderr)
			}
			if strings.Contains(out+stderr, canary) || !strings.Contains(out, "***") {
				t.Errorf("the password: %s%s", out, stderr)
			}
			inside := b.at(clean).with("HOLDFAST_HELD=x=1", "HOLDFAST_SECRETS="+b.file("secrets"))
			// The outer command has ended.
			_, stderr = inside.want(77, "run", "-n", "b", "--", "true")
			if name != "zookeeper" && !strings.Contains(stderr, `inside "holdfast run" there is no password`) {
				t.Error(stderr)
			}
			// Another URL gets no password.
			out, _ = b.want(0, "run", "a", "--", "sh", "-c",
				"HOLDFAST_URL=$(echo $HOLDFAST_URL | sed s/127.0.0.1/localhost/) $H config")
			if !strings.Contains(out, "localhost") || strings.Contains(out, "***") {
				t.Error(out)
			}
			for _, forged := range []string{"/proc/self/fd/0", "/proc/1/fd/../environ", "/etc/passwd", "/proc//fd/",
				"/proc/1/fd/99999", "x"} {
				if out, _ = b.at(clean).with("HOLDFAST_SECRETS="+forged).want(0, "config"); strings.Contains(out, "***") {
					t.Error(out)
				}
			}
		})
	}
}

// A user with the home of another user has no profiles there, and no error.
func TestForeignHome(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	closed := b.dir + "/closed"
	if err := os.Mkdir(closed, 0o700); err != nil { // of root
		t.Fatal(err)
	}
	p := b.with("HOME="+closed, "HOLDFAST_URL=memory:").prepare("ls")
	p.SysProcAttr = &syscall.SysProcAttr{Credential: whom}
	p.begin()
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// A process of another user inside the command does not get the password.
func TestNestedPasswordOfAnotherUser(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("needs setpriv")
	}
	b = b.at(passworded["redis"](t, b))
	out, stderr := b.want(0, "run", "a", "--", "sh", "-c",
		"$H config; exec setpriv --clear-groups --reuid="+fmt.Sprint(whom.Uid)+" sh -c 'cat $HOLDFAST_SECRETS; $H config; $H run -n b -- true; echo $?'")
	if strings.Count(out, "***") != 1 || !strings.Contains(out, "\n77\n") || strings.Contains(out+stderr, canary) ||
		!strings.Contains(stderr, "Permission denied") {
		t.Errorf("%s%s", out, stderr)
	}
}
