//go:build linux

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/open"
)

// damager damages the record of a name, and removes the damaged record.
type damager struct {
	damage, repair func(name string)
}

// damageRedis damages a record at all the servers.
func damageRedis(servers ...*testenv.RedisServer) damager {
	each := func(command, rest string) func(string) {
		return func(name string) {
			for _, s := range servers {
				// A server without such a key, as in a quorum, answers with an error.
				s.Do("EVAL return(redis.call([[" + command + "]],redis.call([[KEYS]],ARGV[1])[1]" + rest + ")) 0 *:l:" + name)
			}
		}
	}
	return damager{each("SET", ",[[nonsense]]"), each("DEL", "")}
}

// damageTable damages a row of a database server.
func damageTable(exec func(...string), bytes string) damager {
	where := func(name string) string { return " WHERE name = " + fmt.Sprintf(bytes, name) }
	return damager{
		func(name string) { exec("UPDATE hf_lock SET ver = ver + 1, kind = 9" + where(name)) },
		func(name string) { exec("DELETE FROM hf_lock" + where(name)) },
	}
}

// damageFile damages a row of SQLite.
func damageFile(t *testing.T, path string) damager {
	do := func(statement, name string) {
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
		if err == nil {
			_, err = db.Exec(statement, []byte(name))
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	return damager{
		func(name string) { do("UPDATE lock SET kind = 9 WHERE name = ?", name) },
		func(name string) { do("DELETE FROM lock WHERE name = ?", name) },
	}
}

// recordDamaged damages the record of a mutex that one client holds besides others. Every request
// for it must fail with ErrDamaged. Run with Options.Own.
func recordDamaged(t *testing.T, one sync.Locker, url string, how damager) verify.Fault {
	return fault(one, "record-damaged", func() func() {
		s, err := open.Open(t.Context(), url)
		if err != nil {
			t.Errorf("cannot damage a record: %v", err)
			return nil
		}
		name := ""
		until(t, "a record is damaged", func() bool {
			_, err := s.Inspect(t.Context(), name)
			if errors.Is(err, driver.ErrDamaged) {
				return true
			}
			if name = ownName(t.Context(), s); name != "" {
				how.damage(name)
			}
			return false
		})
		requestDamaged(t, s, name)
		return func() {
			requestDamaged(t, s, name)
			how.repair(name)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// ownName returns the name of a mutex that a client holds by itself, or "".
func ownName(ctx context.Context, s *open.Store) string {
	list, err := s.List(ctx, "verify/", "", 1000)
	if err != nil {
		return ""
	}
	for _, r := range list {
		if strings.Contains(r.Name, "/"+verify.OwnNames) && len(r.Holders) == 1 {
			return r.Name
		}
	}
	return ""
}

// requestDamaged requests a lock whose record is damaged.
func requestDamaged(t *testing.T, s *open.Store, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The TTL bounds a request: another process may stand still inside a transaction.
	ttl := time.Minute
	if s.Name() == "redis-quorum" { // allowed is its quarantine
		ttl = 3 * tortureTTL
	}
	c, err := holdfast.New(ctx, s, &holdfast.Config{TTL: ttl})
	if err != nil {
		t.Errorf("cannot request %s: %v", name, err)
		return
	}
	for what, try := range map[string]func(context.Context) (*holdfast.Lease, error){
		"Lock": c.Mutex(name).Lock, "TryLock": c.Mutex(name).TryLock} {
		if _, err := try(ctx); !errors.Is(err, holdfast.ErrDamaged) {
			t.Errorf("%s of %s, whose record is damaged: %v; want ErrDamaged", what, name, err)
		}
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// allOf locks all the mutexes.
type allOf []sync.Mutex

func (e allOf) Lock() {
	for i := range e {
		e[i].Lock()
	}
}

func (e allOf) Unlock() {
	for i := range e {
		e[i].Unlock()
	}
}
