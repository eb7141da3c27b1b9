package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// diagnoseSQLite returns the findings by code, and one text of those that are not fine.
func diagnoseSQLite(t *testing.T, b *Backend) (by map[string]driver.Finding, unlike string) {
	t.Helper()
	list, err := b.Diagnose(t.Context(), 15*time.Second)
	must(t, err)
	by = map[string]driver.Finding{}
	var all []string
	for _, f := range list {
		if _, twice := by[f.Code]; twice || f.Found == "" || (f.Severity != driver.Fine) != (f.Why != "" && f.Do != "") {
			t.Errorf("incomplete, or twice: %+v", f)
		}
		if by[f.Code] = f; f.Severity != driver.Fine && f.Code != "sqlite.latency" { // latency depends on the machine
			all = append(all, strings.TrimPrefix(f.Code, "sqlite.")+" "+f.Severity.String())
		}
	}
	slices.Sort(all)
	return by, strings.Join(all, ", ")
}

// onDisk is the machine with a fixed kind of file system.
func onDisk() *env {
	e := machine
	e.place = func(dir string) (host.Place, error) {
		p, err := host.PlaceOf(dir)
		p.Kind = "ext4"
		return p, err
	}
	return &e
}

func TestSQLiteDoctor(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, &Config{env: onDisk()})
	by, unlike := diagnoseSQLite(t, b)
	if unlike != "" || len(by) != 9 {
		t.Errorf("not fine: %q, of %d: %v", unlike, len(by), by)
	}
	must(t, os.WriteFile(path+".new-abc", nil, 0o600))
	if by, unlike := diagnoseSQLite(t, b); unlike != "" ||
		!strings.Contains(by["sqlite.leftovers"].Found, "left 1 files") {
		t.Errorf("not fine: %q: %+v", unlike, by["sqlite.leftovers"])
	}
	must(t, os.Chmod(path, 0o666))
	if _, unlike := diagnoseSQLite(t, b); unlike != "permissions endangers" {
		t.Errorf("a file that all users may write to, not fine: %q", unlike)
	}
	must(t, os.Chmod(path, 0o600))
	must(t, os.Chmod(filepath.Dir(path), 0o777))
	if by, unlike := diagnoseSQLite(t, b); unlike != "permissions endangers" ||
		!strings.Contains(by["sqlite.permissions"].Do, filepath.Dir(path)) {
		t.Errorf("a folder that all users may write to, not fine: %q", unlike)
	}
	must(t, os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky))
	if _, unlike := diagnoseSQLite(t, b); unlike != "" {
		t.Errorf("a folder such as /tmp, not fine: %q", unlike)
	}
	must(t, os.Truncate(path+"-wal", 65<<20))
	if _, unlike := diagnoseSQLite(t, b); unlike != "leftovers slows" {
		t.Errorf("a long log, not fine: %q", unlike)
	}
	must(t, os.Remove(path))
	if _, err := b.Diagnose(t.Context(), time.Second); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("a file that is gone: %v, want ErrRefused", err)
	}
	_ = b.Close()
	if _, err := b.Diagnose(t.Context(), time.Second); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
}

// Kinds of machines on which the tests do not run.
func TestSQLiteDoctorPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		place  host.Place
		apart  bool
		want   string
		danger bool
	}{
		"fuse":      {host.Place{Kind: "fuse", Free: 1 << 30}, false, "file-system unknown", true},
		"container": {host.Place{Kind: "overlay", Free: 1 << 30}, false, "file-system unknown", false},
		"elsewhere": {host.Place{}, false, "file-system unknown", false},
		"full":      {host.Place{Kind: "xfs", Free: 1 << 20}, false, "space slows", false},
		"namespace": {host.Place{Kind: "xfs", Free: 1 << 30}, true, "clock unknown", true},
	} {
		e := machine
		e.place = func(string) (host.Place, error) { return c.place, nil }
		e.ownTime = func() bool { return c.apart }
		by, unlike := diagnoseSQLite(t, openTest(t, storePath(t), &Config{env: &e}))
		danger := false
		for _, f := range by {
			danger = danger || f.Danger()
		}
		if unlike != c.want || danger != c.danger {
			t.Errorf("%s: not fine: %q, a danger: %v; want %q, %v", name, unlike, danger, c.want, c.danger)
		}
	}
	p, err := host.PlaceOf(t.TempDir())
	if err != nil || runtime.GOOS == "linux" && (p.Kind == "" || p.Free == 0) {
		t.Errorf("this machine: %+v, %v", p, err)
	}
}

// An overwritten page is found.
func TestSQLiteDoctorDamage(t *testing.T) {
	path := storePath(t)
	must(t, openTestOnce(path))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("\xff", 4096)), 2*4096)
	must(t, err)
	must(t, f.Close())
	b, err := Open(path, &Config{env: onDisk()})
	if err != nil { // the page belongs to a table that is read then
		if !errors.Is(err, driver.ErrRefused) {
			t.Errorf("%v, want ErrRefused", err)
		}
		return
	}
	defer func() { _ = b.Close() }()
	list, err := b.Diagnose(t.Context(), time.Second)
	damaged := slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "sqlite.integrity" && f.Severity == driver.Endangers
	})
	if !damaged && !errors.Is(err, driver.ErrRefused) {
		t.Errorf("%v, %v, want a damaged file", list, err)
	}
}
