//go:build unix

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serves starts serve, and returns it with its address.
func (b *bench) serves(args ...string) (*process, string) {
	b.Helper()
	p := b.start(append([]string{"--ttl", "3s", "serve", "--listen", "127.0.0.1:0"}, args...)...)
	b.until("the address", func() bool { return strings.HasSuffix(p.out.String(), "/\n") })
	return p, strings.TrimSpace(p.out.String())
}

// ask sends a request, and returns the status and the answer.
func (b *bench) ask(method, address, body string, headers ...string) (int, string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, address, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

const serveSecret = "correct-horse-battery-staple"

// The console shows what the command line does, and breaks a lock only for users.
func TestServe(t *testing.T) {
	onStores(t, "", func(b *bench) {
		b.want(0, "run", "first", "--", "true") // creates the embedded store
		holder := b.stay("held", "deploy/prod")
		b.file("held")
		_, plain := b.serves()
		if code, page := b.ask("GET", plain, ""); code != 200 || !strings.Contains(page, "deploy/prod") {
			b.Errorf("%d %s", code, page)
		}
		if code, _ := b.ask("GET", plain, "", "Host", "evil.example"); code != http.StatusMisdirectedRequest {
			b.Errorf("another host: %d", code)
		}
		if code, _ := b.ask("POST", plain+"api/v1/sessions", "{}", "Content-Type",
			"application/json"); code != 404 && code != 405 {
			b.Errorf("the API is there without --api: %d", code)
		}
		users := filepath.Join(b.dir, "users")
		if err := os.WriteFile(users, []byte("ann:"+serveSecret+"\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		p, address := b.serves("--base-path", "/locks", "--users", users, "--allow-break", "--api")
		for _, path := range []string{"", "static/style.css", "events", "api/v1/openapi.json", "../",
			"lock?name=deploy/prod"} {
			if code, text := b.ask("GET", address+path, ""); code != 401 || strings.Contains(text, "deploy") {
				b.Errorf("%q without a secret: %d %s", path, code, text)
			}
		}
		auth := []string{"Authorization", "Bearer " + serveSecret}
		token := b.token("deploy/prod")
		breaks := address + "break?" + url.Values{"name": {"deploy/prod"}, "token": {token}}.Encode()
		form := url.Values{"typed": {"deploy/prod"}, "reason": {"it hangs"}}.Encode()
		form1 := []string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}
		if code, _ := b.ask("POST", breaks, form, form1...); code != 401 {
			b.Errorf("break without a secret: %d", code)
		}
		if code, _ := b.ask("POST", strings.Replace(breaks, address, plain, 1), form, form1...); code != 403 {
			b.Errorf("break without --allow-break: %d", code)
		}
		if code, text := b.ask("POST", breaks, form, append(auth, form1...)...); code != 200 {
			b.Errorf("break: %d %s", code, text)
		}
		if out, _ := b.want(0, "info", "deploy/prod"); !strings.Contains(out, "not in use") {
			b.Error(out)
		}
		for _, part := range []string{"user=ann", "lock=deploy/prod", "reason=\"it hangs\""} {
			b.until("the log has "+part, func() bool { return strings.Contains(p.err.String(), part) })
		}
		_ = holder.Process.Kill()
		p.signal(syscall.SIGTERM)
		if code := p.code(); code != 0 {
			b.Errorf("exit code %d", code)
		}
	})
}

// What serve is not allowed to be.
func TestServeUsage(t *testing.T) {
	b := newBench(t)
	b.want(0, "run", "first", "--", "true")
	users := filepath.Join(b.dir, "users")
	if err := os.WriteFile(users, []byte("ann:"+serveSecret+"\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "--users", []string{"--listen", ":0"}},
		{64, "--users", []string{"--listen", "0.0.0.0:0"}},
		{64, "--users", []string{"--listen", "[::]:0", "--api"}},
		{64, "--users", []string{"--allow-break"}},
		{64, "--base-path", []string{"--base-path", "locks"}},
		{64, "--base-path", []string{"--base-path", "/locks/"}},
		{64, "--base-path", []string{"--base-path", "/{x}"}},
		{64, "--listen", []string{"--listen", "nonsense"}},
		{64, "--host", []string{"--host", "a b"}},
		{64, "--host", []string{"--host", ""}},
		{64, "--host", []string{"--host", "https://locks.example.com"}},
		{64, "--host", []string{"--host", "locks.example.com:7420"}},
		{64, "belong together", []string{"--tls-cert", "x"}},
		{78, "chmod 600", []string{"--users", users}},
		{78, "no such file", []string{"--users", "/nothing"}},
		{78, "no such file", []string{"--tls-cert", "/nothing", "--tls-key", "/nothing"}},
	} {
		if _, stderr := b.want(c.code, append([]string{"serve"}, c.args...)...); !strings.Contains(stderr, c.says) {
			t.Errorf("%q: %s", c.args, stderr)
		}
	}
	b.env = append(b.env, "HOLDFAST_SERVE_TOKEN=short")
	if _, stderr := b.want(78, "serve"); strings.Contains(stderr, "short;") {
		t.Error(stderr)
	}
}

// python runs a script with the example as its library.
func (b *bench) python(address, script string) *process {
	b.Helper()
	dir, err := filepath.Abs("../../examples/python")
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("python3", "-c", script, address+"api")
	p := b.process(cmd)
	p.Env = append(p.Env, "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	p.begin()
	return p
}

// A program in Python takes turns with a command, keeps its lock, and knows when it has lost it.
func TestServePython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	onStores(t, "", func(b *bench) {
		_, address := b.serves("--api", "--ttl", "9s")
		holds := b.python(address, `
import holdfast, sys, time, pathlib
with holdfast.Session(sys.argv[1], client="test") as api:
    with api.lock("a", note="from Python") as lock:
        pathlib.Path("token").write_text(f"{lock.token}\n")
        while not pathlib.Path("go").exists():
            lock.check()
            time.sleep(0.05)
    print("released")
    try:
        api.lock("b", wait=False, mode="permits")
    except holdfast.Error as e:
        print(e.code)
    with api.lock("b", mode="permits", limit=2):
        with api.lock("b", mode="permits", limit=2):
            try:
                api.lock("b", mode="permits", limit=2, wait=False)
            except holdfast.Error as e:
                print(e.code)
`)
		token := b.file("token")
		if got := b.token("a"); got != token {
			b.Errorf("token %s, want %s", got, token)
		}
		next := b.start("run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; touch done")
		b.until("it waits", func() bool { out, _ := b.want(0, "info", "a"); return strings.Contains(out, "waiting  1") })
		// The heartbeats keep the lock for longer than a lease: a later one without heartbeats ends before.
		b.silent(address, "c")
		b.want(0, "run", "c", "--", "true")
		if _, err := os.Stat(filepath.Join(b.dir, "done")); err == nil {
			b.Error("two have the lock")
		}
		b.touch("go")
		if code := holds.code(); code != 0 || holds.out.String() != "released\ninvalid\nbusy\n" {
			b.Errorf("%d %q %s", code, holds.out.String(), holds.err.String())
		}
		if code := next.code(); code != 0 {
			b.Error(code, next.err.String())
		}

		// The server stands still, and later dies: the program stops before another begins.
		p, address := b.serves("--api")
		for _, how := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			b.loses(p, address, how)
		}
	})
}

// post sends a request to the API.
func (b *bench) post(address, path, body, session string) (int, string) {
	b.Helper()
	return b.ask("POST", address+"api/v1/"+path, body, "Content-Type", "application/json", "Holdfast-Session", session)
}

// silent takes a lock by a session that sends no heartbeats.
func (b *bench) silent(address, name string) {
	b.Helper()
	_, text := b.post(address, "sessions", "{}", "")
	session := text[strings.Index(text, `"session":"`)+11:][:26]
	if code, text := b.post(address, "acquire", `{"request":1,"name":"`+name+`"}`, session); code != 200 {
		b.Fatal(code, text)
	}
}

// loses sends a signal to the server of a program that has a lock.
func (b *bench) loses(p *process, address string, how syscall.Signal) {
	b.Helper()
	name := fmt.Sprint("signal-", int(how))
	program := b.python(address, `
import holdfast, sys, time, pathlib
api = holdfast.Session(sys.argv[1])
lock = api.lock("`+name+`")
pathlib.Path("`+name+`.held").write_text("yes\n")
try:
    while True:
        lock.check()
        pathlib.Path("`+name+`.last").write_text(str(time.time()))
        time.sleep(0.02)
except holdfast.Lost:
    print("lost")
`)
	b.file(name + ".held")
	if how == syscall.SIGSTOP {
		p.halt() // next must be able to use the file of the embedded store
	} else {
		p.signal(how)
	}
	next := b.start("run", name, "--", "sh", "-c", "test -s "+name+".last && cp "+name+".last "+name+".seen")
	if code := program.code(); code != 0 || program.out.String() != "lost\n" {
		b.Errorf("%d %q %s", code, program.out.String(), program.err.String())
	}
	if code := next.code(); code != 0 {
		b.Error(code, next.err.String())
	}
	last, err1 := os.ReadFile(filepath.Join(b.dir, name+".last"))
	seen, err2 := os.ReadFile(filepath.Join(b.dir, name+".seen"))
	if err1 != nil || err2 != nil || string(last) != string(seen) {
		b.Errorf("%v: it worked on when another had the lock: %s, %s", how, seen, last)
	}
	if how == syscall.SIGSTOP {
		p.signal(syscall.SIGCONT)
	}
}

// On SIGTERM serve frees nothing that a program trusts, and on a second signal ends at once.
func TestServeEnds(t *testing.T) {
	b := newBench(t)
	p, address := b.serves("--api")
	drains := func() bool { code, _ := b.post(address, "sessions", "{}", ""); return code == 503 }
	began := time.Now()
	b.silent(address, "a")
	p.signal(syscall.SIGTERM)
	next := b.start("run", "a", "--", "true")
	b.until("it drains", drains)
	if code := next.code(); code != 0 || time.Since(began) < 2*time.Second {
		t.Errorf("%d after %v", code, time.Since(began))
	}
	if code := p.code(); code != 0 {
		t.Error(code)
	}

	p, address = b.serves("--api", "--ttl", "20s") // the lease must outlast what follows
	b.silent(address, "b")
	p.signal(syscall.SIGTERM)
	b.until("it drains", drains)
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 69 { // 0 is that of a server which has waited for its sessions
		t.Errorf("%d after a second signal", code)
	}
	if out, _ := b.want(0, "info", "b"); strings.Contains(out, "not in use") {
		t.Error("a lease that may be trusted was freed")
	}
}
