//go:build unix

package main_test

import (
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// rules are the lock user's rule of a document, the n-th, and what security.md says that a dashboard's is: the same without the commands
// that write or publish.
func rules(t *testing.T, file string, n int) (locks, looks string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)    ACL SETUSER holdfast on >PASSWORD (.*?)\n\n`).FindAllStringSubmatch(string(text), -1)
	rule := strings.Join(strings.Fields(found[n][1]), " ")
	locks = "user locks on >s3cretw0rd " + rule
	looks = "user looks on >s3cretw0rd " + rule + " "
	for _, c := range []string{"publish", "spublish", "pubsub|numsub", "pubsub|shardnumsub", "set", "setrange", "del", "pexpire", "hset", "hdel", "hincrby", "zadd", "zrem"} {
		looks = strings.ReplaceAll(looks, " +"+c+" ", " ")
	}
	return locks, strings.TrimSpace(looks)
}

// A quorum has mutexes and read/write locks only.
func TestDashboardOfAQuorum(t *testing.T) {
	b := newBench(t)
	locks, looks := rules(t, "../../docs/quorum.md", 0)
	var addrs []string
	for range 3 {
		addrs = append(addrs, testenv.RedisACL(t, []string{locks, looks}).Addr)
	}
	at := func(user string) *bench {
		return b.at("redis+quorum://" + user + ":s3cretw0rd@" + strings.Join(addrs, ","))
	}
	user, dashboard := at("locks"), at("looks")
	user.want(0, "init")
	holder := user.stay("kept", "--note", "release 12", "a")
	token := user.file("kept")
	dashboard.want(0, "ls")
	if out, _ := dashboard.want(0, "info", "a"); !strings.Contains(out, "release 12") {
		t.Error(out)
	}
	for _, args := range [][]string{
		{"run", "-n", "free", "--", "true"}, {"run", "-n", "-s", "free", "--", "true"}, {"break", "a", "--token", token},
	} {
		if code, stdout, stderr := dashboard.run(args...); code != 77 {
			t.Errorf("%q: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
	holder.end()
}

func TestRolesOnCluster(t *testing.T) {
	b := newBench(t)
	locks, looks := rules(t, "../../docs/redis.md", 1)
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{locks, looks}})
	at := func(user string) string { return "redis+cluster://" + user + ":s3cretw0rd@" + c.Servers[0].Addr }
	b.at(at("locks")).want(0, "run", "a", "--", "true")
	if code, _, stderr := b.at(at("looks")).run("ls"); code != 0 {
		for _, s := range c.Servers {
			c, err := net.Dial("tcp", s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte("ACL LOG 1\r\n"))
			answer := make([]byte, 600)
			n, _ := c.Read(answer)
			t.Logf("%q", answer[:n])
			_ = c.Close()
		}
		t.Fatalf("the dashboard's ls: %s", stderr)
	}
	b.roles(map[string]string{"lock-user": at("locks"), "operator": at("locks"), "dashboard": at("looks")})
}
