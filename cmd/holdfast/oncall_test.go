//go:build unix

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// found is how long one command may take to find and explain a trouble.
const found = 10 * time.Second

// trouble is a section of docs/oncall.md: its one command, and what that prints.
type trouble struct{ title, command, output string }

var (
	section  = regexp.MustCompile(`(?m)^## (.*)\n`)
	commands = regexp.MustCompile("(?s)```sh\n(.*?)\n```\n\n```text\n(.*?)\n```")
)

// onCall returns the sections of the page.
func onCall(t *testing.T) (list []trouble) {
	t.Helper()
	text, err := os.ReadFile("../../docs/oncall.md")
	if err != nil {
		t.Fatal(err)
	}
	heads := section.FindAllStringSubmatchIndex(string(text), -1)
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		if m := commands.FindStringSubmatch(string(text[h[1]:end])); m != nil {
			// The page has the usual time; a test cannot wait for it.
			short := strings.NewReplacer("--long 10m", "--long 1s")
			list = append(list, trouble{string(text[h[2]:h[3]]), short.Replace(m[1]), short.Replace(m[2])})
		}
	}
	return list
}

// troubles makes the trouble of each section.
var troubles = map[string]func(b *bench){
	"A stopped holder": func(b *bench) {
		b.useRedis(testenv.Redis(b))
		b.holds("deploy/prod").signal(syscall.SIGSTOP)
	},
	"Work that hangs": func(b *bench) {
		b.useRedis(testenv.Redis(b))
		b.holds("deploy/prod")
		b.start("run", "deploy/prod", "--", "true")
		b.waiting("deploy/prod", 1)
	},
	"A dead waiter": func(b *bench) {
		b.useRedis(testenv.Redis(b))
		b.holds("deploy/prod")
		p := b.start("--ttl", "20s", "run", "deploy/prod", "--", "true")
		b.waiting("deploy/prod", 1)
		p.signal(syscall.SIGSTOP)
	},
	"A lock of another library": func(b *bench) {
		r := testenv.Redis(b)
		b.useRedis(r)
		r.Do("SET deploy/prod worker-7 NX EX 3600")
	},
	"A damaged record": func(b *bench) {
		r := testenv.Redis(b)
		b.useRedis(r)
		b.holds("deploy/prod")
		b.holds("web/prod")
		for _, shard := range shards { // one of them has the name
			r.Do("SET hf:{" + shard + "}:l:web/prod nonsense XX")
		}
	},
	"A server that evicts": func(b *bench) {
		b.useRedis(testenv.Redis(b, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"))
	},
	"Memory is full": func(b *bench) { b.useRedis(testenv.Redis(b, "--maxmemory", "1mb")) },
	"A disk is full": func(b *bench) {
		d := testenv.SmallDisk(b, 1<<20)
		b.env = append(b.env, "HOLDFAST_URL=sqlite:"+filepath.Join(d.Path, "locks.db"))
		b.want(0, "run", "deploy/prod", "--", "true")
		d.Fill()
	},
	"A replica that takes no writes": func(b *bench) {
		r := testenv.Redis(b)
		r.Do("REPLICAOF 127.0.0.1 1")
		b.useRedis(r)
	},
	"A missing permission": func(b *bench) {
		r := testenv.RedisACL(b, []string{"user app on >s3cret ~app:* &* +@all"})
		b.env = append(b.env, "HOLDFAST_URL=redis://app:s3cret@"+r.Addr)
	},
	"FLUSHALL": func(b *bench) {
		r := testenv.Redis(b)
		b.useRedis(r)
		b.holds("deploy/prod")
		r.Do("FLUSHALL")
	},
	"A server of a quorum is away":       func(b *bench) { b.useQuorum()[1].Kill() },
	"A server of a quorum in quarantine": func(b *bench) { b.useQuorum()[1].Restart(false) },
	"A server of a quorum that refuses":  func(b *bench) { b.useQuorum()[1].Do("ACL SETUSER default -evalsha") },
	"A quorum without a majority": func(b *bench) {
		servers := b.useQuorum()
		servers[0].Pause()
		servers[2].Kill()
	},
	"A name with too few free servers": func(b *bench) {
		b.tooFewServers("50s", "deploy/prod").Kill()
	},
	"A server that does not answer": func(b *bench) {
		r := testenv.Redis(b)
		b.useRedis(r)
		r.Pause()
	},
}

// shards are the hash tags of Redis's keys.
var shards = func() (all []string) {
	for i := range 64 {
		all = append(all, fmt.Sprintf("%02x", i))
	}
	return all
}()

// tooFewServers makes a quorum the store of the test. One server has a grant of name that nobody ends before its TTL is
// over. Without the server that it returns too few are free.
func (b *bench) tooFewServers(ttl, name string) *testenv.RedisServer {
	b.Helper()
	servers := b.useQuorum()
	p := b.start("--ttl", ttl, "run", name, "--", "sh", "-c", "echo $$ >$D/held; exec sleep 1000")
	b.file("held")
	b.until("the first server has the grant", func() bool {
		return slices.ContainsFunc(shards, func(shard string) bool {
			return servers[0].Do("EXISTS hfq:{"+shard+"}:l:"+name) == ":1"
		})
	})
	servers[0].Pause()
	p.signal(syscall.SIGTERM)
	p.code()
	servers[0].Continue()
	return servers[1]
}

// useRedis makes r the store of the test.
func (b *bench) useRedis(r *testenv.RedisServer) { b.env = append(b.env, "HOLDFAST_URL="+r.URL()) }

// useQuorum makes a quorum whose servers vote the store of the test.
func (b *bench) useQuorum() []*testenv.RedisServer {
	b.Helper()
	servers := []*testenv.RedisServer{testenv.Redis(b), testenv.Redis(b), testenv.Redis(b)}
	b.env = append(b.env, "HOLDFAST_URL=redis+quorum://"+servers[0].Addr+","+servers[1].Addr+","+servers[2].Addr)
	b.want(0, "init")
	return servers
}

// holds starts a process that holds name until the test ends.
func (b *bench) holds(name string) *process {
	b.Helper()
	ready := strings.ReplaceAll(name, "/", "-")
	p := b.start("--ttl", "20s", "run", name, "--", "sh", "-c", "echo $$ >$D/"+ready+"; exec sleep 1000")
	b.file(ready)
	return p
}

// Each trouble of docs/oncall.md is found and explained by its one command, in under ten seconds, in
// the words of the page.
func TestOnCall(t *testing.T) {
	list := onCall(t)
	if len(list) != len(troubles) {
		t.Errorf("the page has %d troubles, the test %d", len(list), len(troubles))
	}
	for _, tr := range list {
		t.Run(tr.title, func(t *testing.T) {
			b := newBench(t)
			begin := troubles[tr.title]
			if begin == nil {
				t.Fatal("the test does not know this trouble")
			}
			begin(b)
			// A stopped process becomes visible when a renewal is overdue.
			for end := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
				out, took := b.shell(tr.command)
				missing := lacks(out, tr.output)
				switch {
				case missing == "" && took < found:
					return
				case time.Now().Before(end): // also after a stall of the machine
				case missing == "":
					t.Fatalf("%s took %v, want less than %v", tr.command, took, found)
				default:
					t.Fatalf("%s: %q is not in the output, or not in this order:\n%s", tr.command, missing, out)
				}
			}
		})
	}
}

// shell runs one command of the page, and returns what it prints and how long it takes.
func (b *bench) shell(command string) (out string, took time.Duration) {
	b.Helper()
	p := b.process(exec.Command("sh", "-c", `holdfast() { "$H" "$@"; }; `+command))
	p.Stderr = p.Stdout
	began := time.Now()
	p.begin()
	p.code()
	return p.out.String(), time.Since(began)
}

// lacks returns the first line of want that got does not have after the one before it; "": got has
// all of them. An ellipsis stands for any text, and alone in a line for any lines.
func lacks(got, want string) string {
	rest := strings.Split(got, "\n")
	for line := range strings.Lines(want) {
		line = strings.TrimSuffix(line, "\n")
		if line == "…" {
			continue
		}
		quoted := regexp.QuoteMeta(strings.TrimRight(line, " "))
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(quoted, "…", ".*") + " *$")
		for len(rest) > 0 && !pattern.MatchString(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return line
		}
		rest = rest[1:]
	}
	return ""
}
