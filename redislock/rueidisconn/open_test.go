package rueidisconn

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

func TestConfig(t *testing.T) {
	for url, want := range map[string]redislock.Config{
		"redis://u:p%40s%2Fs@h:7/3":            {},
		"redis://u:p%40s%2Fs@h:7/3?replicas=2": {WaitReplicas: 2},
		"redis://u:p%40s%2Fs@h:7/3?replicas=32&replica-timeout=1500ms": {WaitReplicas: 32,
			WaitTimeout: 1500 * time.Millisecond},
		"unix://u:p%40s%2Fs@/run/my%20redis.sock?db=3&replicas=1":        {WaitReplicas: 1},
		"redis+unix://u:p%40s%2Fs@/run/redis.sock?replicas=1&db=3":       {WaitReplicas: 1},
		"rediss://u:p%40s%2Fs@[::1]:7/3?servername=a%26b.c&replicas=007": {WaitReplicas: 7},
	} {
		rest, cfg, err := config(url)
		if err != nil || cfg.Config.Config != want || cfg.redisson {
			t.Errorf("%s: %+v, %v; want %+v", url, cfg, err, want)
			continue
		}
		before, _, _ := strings.Cut(strings.ReplaceAll(url, "replica-timeout=1500ms", ""), "replicas=")
		opt, err := parse(rest)
		plain, perr := parse(strings.TrimRight(before, "?&"))
		if strings.HasPrefix(url, "redis+unix") {
			plain, perr = parse(before + "db=3")
		}
		if err != nil || perr != nil || opt.Password != "p@s/s" || opt.SelectDB != 3 ||
			opt.InitAddress[0] != plain.InitAddress[0] {
			t.Errorf("%s: rest %s: %+v, %v; want %+v, %v", url, rest, opt, err, plain, perr)
		}
		if opt.TLSConfig != nil && opt.TLSConfig.ServerName != "a&b.c" {
			t.Errorf("%s: server name %q", url, opt.TLSConfig.ServerName)
		}
	}
}

func TestDialect(t *testing.T) {
	for query, want := range map[string]table{
		"?dialect=redisson": {redisson: true},
		"?dialect=redisson&mutex=fenced&semaphore=plain": {redisson: true,
			Config: redisson.Config{Fenced: true, PlainSemaphores: true}},
		"?dialect=redisson&mutex=fair": {redisson: true, Config: redisson.Config{Fair: true}},
		"?db=3&dialect=redisson&replicas=2": {redisson: true,
			Config: redisson.Config{Config: redislock.Config{WaitReplicas: 2}}},
	} {
		rest, got, err := config("unix:///s" + query)
		if err != nil || got != want || strings.Contains(rest, "dialect") {
			t.Errorf("%s: %+v, %q, %v; want %+v", query, got, rest, err, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	const canary = "s3cr3t"
	for _, query := range []string{
		"replicas=", "replicas=0", "replicas=-1", "replicas=33", "replicas=two", "replicas=1&replicas=1", "replicas=1&x=1",
		"replica-timeout=1s", "replicas=1&replica-timeout=1", "replicas=1&replica-timeout=0s",
		"replicas=1&replica-timeout=-1s",
		"replicas=1&replica-timeout=1s&replica-timeout=1s", "replicas=1&%zz",
		"dialect=", "dialect=curator", "dialect=redisson&dialect=redisson", "mutex=fenced", "semaphore=plain",
		"dialect=redisson&mutex=unfair", "dialect=redisson&semaphore=", "dialect=redisson&replicas=0",
	} {
		_, err := Open("redis://u:" + canary + "@h?" + query)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", query, err)
		} else if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "replicas=N") {
			t.Errorf("%s: %v", query, err)
		}
	}
	// Dial has no lock table that could wait for replicas.
	if _, err := Dial("redis://h?replicas=1"); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "in Open and") {
		t.Errorf("Dial: %v; want ErrInvalid", err)
	}
}

// An unknown parameter is named with those that are allowed beside the others, and the URL is shown whole.
func TestUnknownParameter(t *testing.T) {
	for query, want := range map[string]string{
		"dialect=redisson&mutx=fair": `?dialect=redisson&mutx=***": the parameter "mutx" is unknown (did you mean mutex?): this URL may have ` +
			`dial-timeout, dialect, mutex, password-file, pool-size, read-timeout, replica-timeout, replicas, semaphore;`,
		"dialekt=redisson&mutex=fair": `the parameter "dialekt" is unknown (did you mean dialect?): this URL may have ` +
			`dial-timeout, dialect, password-file, pool-size, read-timeout, replica-timeout, replicas;`,
		"replica=1":                         `the parameter "replica" is unknown (did you mean replicas?): this URL may `,
		"mutex=fair":                        `the parameter "mutex" needs dialect=redisson;`,
		"semaphore=plain":                   `the parameter "semaphore" needs dialect=redisson;`,
		"dialect=redisson&dialect=redisson": `the parameter "dialect" is given twice;`,
		"dialect=redisson&mutex=fare":       `the parameter "mutex" must be fair or fenced;`,
	} {
		if _, err := Open("redis://h?" + query); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", query, err, want)
		}
	}
}
