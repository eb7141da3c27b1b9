package cli

import (
	"bytes"
	"strings"
	"testing"
)

// try runs a command line that fails before it reaches a store.
func try(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	root := a.root()
	root.SetArgs(args)
	code = a.exit(root.Execute())
	return code, out.String(), errs.String()
}

// TestUsage: the message about a wrong command line says what is wrong and what is allowed.
func TestUsage(t *testing.T) {
	const run = "run a -- true"
	for line, want := range map[string]string{
		"":                       "say what to do, for example: holdfast run NAME -- COMMAND; see holdfast help",
		"rnu":                    "there is no command holdfast rnu (did you mean run?); see holdfast --help",
		"lock a":                 "there is no command holdfast lock (did you mean run?); see holdfast --help",
		"unlock a":               "there is no command holdfast unlock (did you mean break?); see holdfast --help",
		"top -o json":            "-o, --output json: allowed are table, wide; see holdfast top --help",
		"top":                    "--watch and top need a terminal; holdfast watch is for files and programs",
		"ls --watch -o json":     "--watch and -o json contradict each other: holdfast watch -o jsonl is for programs; see holdfast ls --help",
		"ls --sort size":         "--sort size: allowed are name, held, lease, waiting, trouble; see holdfast ls --help",
		"ls -l x":                "-l, --label x: expected KEY=VALUE, for example ticket=OPS-12; see holdfast ls --help",
		"zzzzzz":                 "there is no command holdfast zzzzzz; see holdfast --help",
		"sem":                    "say what to do; see holdfast sem --help",
		"sem show a":             "there is no command holdfast sem show; see holdfast sem --help",
		"latch":                  "say what to do; see holdfast latch --help",
		"latch dwon":             "there is no command holdfast latch dwon (did you mean down?); see holdfast latch --help",
		"lab pay":                "there is no command holdfast lab pay; see holdfast lab --help",
		"help rnu":               "there is no command holdfast rnu (did you mean run?); see holdfast --help",
		"completion":             "say what to do; see holdfast completion --help",
		"completion cmd":         "there is no command holdfast completion cmd; see holdfast completion --help",
		"completion bash x":      "x is one argument too many: holdfast completion bash takes none; see holdfast completion bash --help",
		"version x":              "x is one argument too many: holdfast version takes none; see holdfast version --help",
		"doctor x":               "x is one argument too many: holdfast doctor takes none; see holdfast doctor --help",
		"info":                   "the name of the lock is missing: holdfast info NAME [flags]; see holdfast info --help",
		"info a b":               "b is one argument too many: holdfast info NAME [flags]; see holdfast info --help",
		"break":                  "the name of the lock is missing: holdfast break NAME --token T [flags]; see holdfast break --help",
		"leader":                 "the name of the election is missing: holdfast leader NAME [flags]; see holdfast leader --help",
		"ls a b":                 "b is one argument too many: holdfast ls [PREFIX] [flags]; see holdfast ls --help",
		"sem limit a":            "the number of permits is missing: holdfast sem limit NAME [M] [flags]; see holdfast sem limit --help",
		"sem limit a many":       "many is not a number of permits: allowed are 1 to 1073741824",
		"sem limit a 0":          "0 is not a number of permits: allowed are 1 to 1073741824",
		"sem limit a 9999999999": "9999999999 is not a number of permits: allowed are 1 to 1073741824",
		"latch set":              "the name of the latch is missing: holdfast latch set NAME N [flags]; see holdfast latch set --help",
		"latch set a":            "the number to count from is missing: holdfast latch set NAME N [flags]; see holdfast latch set --help",
		"latch set a many":       "many is not a number to count from: allowed are 0 and more, for example 3",
		"latch set a -- -1":      "-1 is not a number to count from: allowed are 0 and more, for example 3",
		"latch set a -1":         "-1 is not a number to count from: allowed are 0 and more, for example 3",
		"latch set a -x":         "there is no flag -x; see holdfast latch set --help",
		"latch down a -1":        "there is no flag -1; see holdfast latch down --help",
		"latch down a --id ''":   "--id is empty: expected any text, or leave it out",

		"--nope " + run:  "there is no flag --nope (did you mean --note?); see holdfast run --help",
		"--not x " + run: "there is no flag --not (did you mean --note?); see holdfast run --help",
		"-zn " + run:     "there is no flag -z; see holdfast run --help",
		"--=x " + run:    "--=x is no flag; see holdfast run --help",
		"run --ttl":      "--ttl: the value is missing, for example --ttl 10s; see holdfast run --help",
		"run -w":         "-w, --wait: the value is missing, for example --wait 10; see holdfast run --help",
		"ls -o":          "-o, --output: the value is missing, for example --output table; see holdfast ls --help",
		"ls --store":     "--store: the value is missing, for example --store redis://localhost:6379; see holdfast ls --help",
		"ls --store ''":  "--store is empty: name a store, or leave the flag out for $HOLDFAST_URL or the file of this user",
		"--ttl soon " +
			run: "--ttl soon: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast run --help",
		"--ttl NaN " +
			run: "--ttl NaN: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast run --help",
		"--every 0 " + run: "--every 0s: it must be positive and at most 8784h; see holdfast run --help",
		"--every 20000h " +
			run: "--every 20000h: it must be positive and at most 8784h; see holdfast run --help",
		"--min-hold 99999h " +
			run: "--min-hold 99999h: it must be positive and at most 8784h; see holdfast run --help",
		"--retry-failed " + run:             "--retry-failed: --every or --min-hold is missing",
		"--every 1h -s " + run:              "--every and -s, --shared contradict each other: only one of them is allowed; see holdfast run --help",
		"--every 1h --limit 2 " + run:       "--every and --limit contradict each other: only one of them is allowed; see holdfast run --help",
		"--every 1h --lease 1m " + run:      "--lease 1m: --every 1h keeps the name for 54m, so --lease must be at least that",
		"--kill-after 3s --lease 6s " + run: "--kill-after 3s: allowed is at most a third of --lease 6s",
		"--min-hold 3s --lease 1s " + run:   "--lease 1s: --min-hold 3s keeps the name for 3s, so --lease must be at least that",
		"--max-hold 0 " + run:               "--max-hold 0: it must be positive; see holdfast run --help",
		"--kill-after -1s " + run:           "--kill-after -1s: it must not be negative",
		"-w soon " +
			run: "-w, --wait soon: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast run --help",
		"-w NaN " +
			run: "-w, --wait NaN: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast run --help",
		"-w 99999999999999 " +
			run: "-w, --wait 99999999999999: too long: at most 106751d; see holdfast run --help",
		"-w 106752d " +
			run: "-w, --wait 106752d: too long: at most 106751d; see holdfast run --help",
		"-w -1 " +
			run: "-w, --wait -1: it must not be negative; 0 does not wait at all; see holdfast run --help",
		"-w 1e10 " +
			run: "-w, --wait 1e10: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast run --help",
		"latch wait a -w x": "-w, --wait x: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast latch wait --help",
		"--limit x " +
			run: "--limit x: expected a whole number, for example --limit 4; see holdfast run --help",
		"--limit 0 " + run:          "--limit 0: allowed are 1 to 1073741824",
		"--limit 9999999999 " + run: "--limit 9999999999: allowed are 1 to 1073741824",
		"--limit 99999999999999999999 " +
			run: "--limit 99999999999999999999: the number is too large; see holdfast run --help",
		"--permits 9999999999 " + run:  "--permits 9999999999: allowed are 1 to 1073741824",
		"--permits 2 -s " + run:        "-s, --shared and --permits contradict each other: only one of them is allowed; see holdfast run --help",
		"--permits 0 --limit 2 " + run: "--permits 0: it must be positive; see holdfast run --help",
		"--permits 3 --limit 2 " + run: "--permits 3: allowed are 1 to 2, the --limit",
		"-E 256 " + run:                "-E 256: allowed are the exit codes 0 to 255",
		"--shared=maybe " +
			run: "-s, --shared maybe: expected --shared=true, --shared=false, or --shared alone; see holdfast run --help",
		"--exclusive=false " + run: "--exclusive=false: use --shared or --limit",
		"-s -x " +
			run: "-x, --exclusive and -s, --shared contradict each other: only one of them is allowed; see holdfast run --help",
		"-s --limit 2 " +
			run: "-s, --shared and --limit contradict each other: only one of them is allowed; see holdfast run --help",
		"-x --limit 2 " +
			run: "-x, --exclusive and --limit contradict each other: only one of them is allowed; see holdfast run --help",
		"-n -w 1 " +
			run: "-n, --nonblock and -w, --wait contradict each other: only one of them is allowed; see holdfast run --help",
		"--every 1h -w 1 " +
			run: "--every and -w, --wait contradict each other: only one of them is allowed; see holdfast run --help",
		"--label x " +
			run: "--label x: expected KEY=VALUE, for example ticket=OPS-12; see holdfast run --help",
		"elect --label x a -- true":        "--label x: expected KEY=VALUE, for example ticket=OPS-12; see holdfast elect --help",
		"elect --kill-after -1s a -- true": "--kill-after -1s: it must not be negative",

		"run":         "the name of the lock is missing: holdfast run [flags] NAME -- COMMAND [ARG...]",
		"run a":       "the command is missing: holdfast run [flags] NAME -- COMMAND [ARG...]",
		"run a --":    "the command is missing: holdfast run [flags] NAME -- COMMAND [ARG...]",
		"run a -- ''": "the command is empty: holdfast run [flags] NAME -- COMMAND [ARG...]",
		"run a true":  "put -- before the command: holdfast run a -- true",
		"run -n --label a=b --label c=d --also y --also z --ttl 5 --note x=$y a true": "put -- before the command: " +
			"holdfast run --also y --also z --label a=b --label c=d -n --note 'x=$y' --ttl 5s a -- true",
		"run --timeout x " + "a -- true": "-w, --wait x: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast run --help",
		"run a b -- true":                "-- needs exactly one name before it, not 2: holdfast run [flags] NAME -- COMMAND [ARG...]",
		"run -c a -- echo b":             "-c takes one argument after --, not 2; quote the command line",
		"elect":                          "the name of the lock is missing: holdfast elect [flags] NAME -- COMMAND [ARG...]",
		"elect a true":                   "put -- before the command: holdfast elect a -- true",
		"elect -c a -- echo b":           "-c takes one argument after --, not 2; quote the command line",

		"break a --token 0":                       "--token 0: no grant has it; holdfast info a shows the token of each grant",
		"ls --json":                               "there is no flag --json; for JSON use -o json; see holdfast ls --help",
		"break a":                                 "--token is missing: holdfast info a shows the token of each grant",
		"break a --token abc":                     `--token abc: expected the number that "holdfast info" shows as the token; see holdfast break --help`,
		"break a;b":                               "--token is missing: holdfast info 'a;b' shows the token of each grant",
		"info -o xml a":                           "-o, --output xml: allowed are table, wide, json, jsonl, name; see holdfast info --help",
		"leader -o table a":                       "-o, --output table: allowed are text, json, jsonl; see holdfast leader --help",
		"doctor --accept replicas":                "--accept replicas: expected the code of a finding, such as redis.replicas",
		"doctor --accept redis.replica":           "--accept redis.replica: no finding has this code (did you mean redis.replicas?); allowed are redis.clock, …",
		"doctor --accept sqlite.clock,redsi.disk": "--accept redsi.disk: expected the code of a finding, such as redis.replicas (did you mean redis.disk?)",
		"doctor --json -o text":                   "--json and -o text contradict each other",
		"lab":                                     "say what to do: holdfast lab list, or holdfast lab run ID",
		"lab list x":                              "x is one argument too many: holdfast lab list takes none; see holdfast lab list --help",
		"lab run":                                 "no algorithm is given: expected an ID from holdfast lab list, or all",
		"lab run nonsense":                        "there is no algorithm nonsense; see holdfast lab list",
		"lab run all --json -o text":              "--json and -o text contradict each other",
		"lab run all -o xml":                      "-o, --output xml: allowed are text, summary, json; see holdfast lab run --help",
		"bench x":                                 "x is one argument too many: holdfast bench takes none; see holdfast bench --help",
		"bench -o xml":                            "-o, --output xml: allowed are table, json, go; see holdfast bench --help",
		"bench --json -o go":                      "--json and -o go contradict each other",
		"bench --histogram -o go":                 "--histogram and -o go contradict each other; see holdfast bench --help",
		"bench --duration 0":                      "--duration 0s: allowed are 10ms to 1h",
		"bench --duration soon":                   "--duration soon: expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d; see holdfast bench --help",
		"bench --count 0":                         "--count 0: allowed are 1 to 1000",
		"bench --scenario (":                      "--scenario (: error parsing regexp: missing closing ): `(`",
		"bench --scenario two":                    "--scenario two: no workload has such a name; they are exchange, pair, names/64, one/2, one/16, one/128-goroutines",
		"verify x":                                "x is one argument too many: holdfast verify takes none; see holdfast verify --help",
		"verify -o xml":                           "-o, --output xml: allowed are text, json; see holdfast verify --help",
		"verify --json -o text":                   "--json and -o text contradict each other",
		"verify --hook x":                         "--hook x: expected NAME=COMMAND",
		"verify --hook =x":                        "--hook =x: expected NAME=COMMAND",
		"verify --except S6":                      "--except S6: allowed are S1 to S5 and L1 to L4",
		"verify --except V":                       "--except V: allowed are S1 to S5 and L1 to L4",
		"verify --worker ''":                      "--worker is empty: expected COMMAND, or leave it out; see holdfast verify --help",
		"verify --keep ''":                        "--keep is empty: expected DIR, or leave it out; see holdfast verify --help",
		"serve --users ''":                        "--users is empty: expected FILE, or leave it out; see holdfast serve --help",
		"serve --listen ''":                       "--listen is empty: expected ADDRESS, or leave it out; see holdfast serve --help",
		"serve --tls-cert '' --tls-key ''":        "--tls-key is empty: expected FILE, or leave it out; see holdfast serve --help",
		"judge - --html ''":                       "--html is empty: expected FILE, or leave it out; see holdfast judge --help",
		"verify --names 0":                        "--names 0: it must be positive; see holdfast verify --help",
		"verify --ops 0":                          "--ops 0: it must be positive; see holdfast verify --help",
		"verify --seed -1":                        "--seed -1: expected a whole number that is not negative, for example --seed 7; see holdfast verify --help",
	} {
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "''", "")
		}
		if n := len(args); strings.HasSuffix(line, " "+run) { // flags of run come after its name
			args = append([]string{"run"}, append(args[:n-4], args[n-3:]...)...)
		}
		code, stdout, stderr := try(args...)
		said, begins := strings.CutSuffix("holdfast: "+want, "…")
		if stderr = strings.TrimSuffix(stderr, "\n"); code != 64 || stdout != "" || !begins && stderr != said ||
			!strings.HasPrefix(stderr, said) {
			t.Errorf("%q: exit code %d, %q%q; want 64, %q", line, code, stdout, stderr, want)
		}
	}
}

// TestTTLRange: every command refuses a TTL that no lease can have.
func TestTTLRange(t *testing.T) {
	for _, ttl := range []string{"0s", "-1s", "1ms", "25h", "9999999h"} {
		for _, command := range []string{"ls", "doctor", "verify", "bench"} {
			code, _, stderr := try(command, "--ttl", ttl)
			given := strings.Replace(ttl, "9999999h", "of more than 106751d", 1)
			if want := "holdfast: --ttl " + given + ": allowed are 100ms to 24h\n"; code != 78 || stderr != want {
				t.Errorf("%s: exit code %d, %q; want 78, %q", command, code, stderr, want)
			}
		}
	}
}

// TestVerifyTTL: the help of verify shows the TTL that verify has by default.
func TestVerifyTTL(t *testing.T) {
	if _, help, _ := try("verify", "--help"); !strings.Contains(help,
		"(ZooKeeper: the session timeout to ask for) (default 1s)") || strings.Contains(help, "(default 15s)") {
		t.Error(help)
	}
	if _, help, _ := try("ls", "--help"); !strings.Contains(help, "(default 15s)") {
		t.Error(help)
	}
}

// TestVersionFlag: --version and version print the same.
func TestVersionFlag(t *testing.T) {
	_, command, _ := try("version")
	code, flag, stderr := try("--version")
	if code != 0 || flag != command || !strings.HasPrefix(flag, "holdfast ") || stderr != "" {
		t.Errorf("exit code %d, %q%q; the command prints %q", code, flag, stderr, command)
	}
}
