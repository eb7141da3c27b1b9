//go:build unix

package main_test

import (
	"strings"
	"testing"
	"unicode"
)

// No command prints control or invisible characters, whatever names and notes others have chosen.
func TestTextOfOthersIsShown(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "COLUMNS=200")
	const evil = "a\x1b]0;b\x07\u009b2J\u202egnp\u2066\u200b\u3164\u2800\u00a0\ufe0f\r\n\t\x7fz"
	holder := b.start("run", "--note", evil, "--label", "k="+evil, "lock"+evil, "--", "sh", "-c",
		"echo x >$D/held; until [ -e $D/end ]; do sleep 0.05; done", evil)
	b.file("held")
	waiter := b.start("run", "--note", evil, "lock"+evil, "--", "true")
	b.until("a waiter", func() bool {
		out, _ := b.want(0, "info", "-o", "json", "lock"+evil)
		return strings.Contains(out, `"waiting": 1`)
	})
	leader := b.start("elect", "--name", evil, "--address", evil, "--note", evil, "boss"+evil, "--", "sh", "-c",
		"echo x >$D/leads; until [ -e $D/end ]; do sleep 0.05; done")
	b.file("leads")
	b.want(0, "latch", "set", "latch"+evil, "2")
	b.start("run", "--limit", "2", "--note", evil, "sem"+evil, "--", "sh", "-c",
		"echo x >$D/sem; until [ -e $D/end ]; do sleep 0.05; done")
	b.file("sem")
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "wide"}, {"ls", "-o", "json"}, {"ls", "-o", "jsonl"}, {"ls", "-o", "name"},
		{"ls", "lock" + evil}, {"info", "lock" + evil}, {"info", "-o", "wide", "lock" + evil},
		{"info", "-o", "json", "lock" + evil}, {"info", "-o", "jsonl", "lock" + evil}, {"info", "-o", "name", "lock" + evil},
		{"info", "nothing" + evil}, {"info", "-o", "wide", "latch" + evil},
		{"info", "sem" + evil}, {"run", "-n", "lock" + evil, "--", "true"},
		{"run", "--wait", "10ms", "lock" + evil, "--", "true"}, {"run", "--limit", "3", "sem" + evil, "--", "true"},
		{"run", "--limit", "1", "lock" + evil, "--", "true"}, {"leader", "boss" + evil},
		{"leader", "-o", "json", "boss" + evil}, {"leader", "-o", "wide", "boss" + evil}, {"leader", "none" + evil},
		{"latch", "down", "latch" + evil}, {"latch", "down", "--id", evil, "latch" + evil}, {"latch", "down", "lock" + evil},
		{"latch", "wait", "--wait", "10ms", "latch" + evil}, {"latch", "rm", "none" + evil}, {"latch", "rm", "lock" + evil},
		{"sem", "limit", "sem" + evil, "3"}, {"sem", "limit", "lock" + evil, "3"}, {"sem", "limit", "none" + evil, "3"},
		{"break", "lock" + evil, "--token", "1"}, {"break", "lock" + evil, "--token", evil},
		{"break", "none" + evil, "--token", "1"},
		{"--store", evil, "ls"}, {"--store", "sqlite:" + evil, "ls"}, {"--store", "redis://" + evil, "ls"},
		{"run", "free" + evil, "--", "no-such" + evil}, {"run", "--ttl", evil, "a", "--", "true"},
		{"doctor", "--accept", evil}, {"doctor", "--store", "sqlite:" + evil}, {"lab", "run", evil}, {evil}, {"--" + evil},
		{"completion", evil}, {"help", evil},
	} {
		_, stdout, stderr := b.run(args...)
		harmless(t, args, stdout+stderr)
	}
	b.touch("end")
	for _, p := range []*process{holder, waiter, leader} {
		if code := p.code(); code != 0 {
			t.Errorf("%q: exit code %d", p.Args, code)
		}
		harmless(t, p.Args, p.out.String()+p.err.String())
	}
}

func harmless(t *testing.T, args []string, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (!unicode.IsGraphic(r) || strings.ContainsRune("\u3164\u2800\u00a0\ufe0f", r)) {
			t.Errorf("%.100q prints %U: %.300q", args, r, text)
			return
		}
	}
}
