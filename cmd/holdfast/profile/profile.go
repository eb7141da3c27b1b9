// Package profile reads profiles from files in TOML: named settings of the command line.
//
//	default-profile = "staging"
//
//	[profile.prod]
//	store = "redis://locks@redis.example:6379"
//	password-file = "~/.config/holdfast/prod-password"
//	ttl = "20s"
//	labels = { team = "payments" }
//
// A file that another user could have written is refused. No error has the value of a setting in
// it, since a password may be anywhere in a file that is wrong.
package profile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/open"
)

// Variable names one file to read in place of the usual ones.
const Variable = "HOLDFAST_CONFIG"

// system is the file for all users of a machine.
const system = "/etc/holdfast/config.toml"

// maxSize bounds a file, in bytes.
const maxSize = 1 << 20

// Profile is one table of a file. Empty fields are not set.
type Profile struct {
	Name, File   string
	Store        string // URL
	PasswordFile string // an absolute path
	TTL          time.Duration
	Labels       map[string]string
}

// Config is what all files have. A profile of an earlier file hides one of the same name in a later
// file.
type Config struct {
	Default  string // the profile to use if none is named; "" if there is none
	From     string // the file that names it
	profiles map[string]*Profile
	parse    func(string) (time.Duration, error)
	meant    func(word string, known []string) string
}

// Paths returns the files to read, the one that counts most first. They need not exist, unless
// HOLDFAST_CONFIG names the only one: then must is true. There is none of the user without a home.
func Paths() (files []string, must bool, err error) {
	if file := os.Getenv(Variable); file != "" {
		if !filepath.IsAbs(file) {
			return nil, false, fmt.Errorf("%s: the path of the file must be absolute", Variable)
		}
		return []string{file}, true, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification says to ignore a relative one
		if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
			dir = filepath.Join(home, ".config")
		} else {
			dir = ""
		}
	}
	if dir != "" {
		files = append(files, filepath.Join(dir, "holdfast", "config.toml"))
	}
	return append(files, system), false, nil
}

// Load reads the files. parse reads a time; meant returns a question with the entry of known that is
// most like word, or "".
func Load(files []string, must bool, parse func(string) (time.Duration, error),
	meant func(word string, known []string) string) (*Config, error) {
	c := &Config{profiles: map[string]*Profile{}, parse: parse, meant: meant}
	for _, file := range files {
		text, private, err := read(file)
		if !must && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoFolder)) {
			continue
		}
		if err == nil {
			err = c.add(file, text, private)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return c, nil
}

// Find returns a profile.
func (c *Config) Find(name string) (*Profile, error) {
	if p := c.profiles[name]; p != nil {
		return p, nil
	}
	names := c.Names()
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no profile %q: no file has profiles", name)
	}
	return nil, fmt.Errorf("there is no profile %q%s; there are %s", name, c.meant(name, names), strings.Join(names, ", "))
}

// Names returns the names of all profiles in order.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.profiles)) }

// errNoFolder means that this user has no such folder: HOME may be /dev/null, or that of another user.
var errNoFolder = errors.New("its folder")

// read returns the text of a file that no other user could have written, and why it may not have a
// password, if so.
func read(file string) (text []byte, private error, err error) {
	plain := func(err error) error {
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			return e.Err // the caller names the file
		}
		return err
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoFolder, plain(err))
	}
	f, err := storeurl.OpenFile(file)
	if err != nil {
		return nil, nil, plain(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, plain(err)
	case !fi.Mode().IsRegular():
		return nil, nil, errors.New("it is not a regular file")
	}
	if err := storeurl.Trusted(fi); err != nil {
		return nil, nil, err
	}
	if err := storeurl.Trusted(dir); err != nil && dir.Mode()&os.ModeSticky == 0 { // there others exchange no file
		return nil, nil, fmt.Errorf("its folder: %w", err)
	}
	text, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	if len(text) > maxSize {
		err = fmt.Errorf("it has more than %d bytes", maxSize)
	}
	return text, storeurl.Private(fi), plain(err)
}

// add adds what a file has.
func (c *Config) add(file string, text []byte, private error) error {
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		if e := (*toml.DecodeError)(nil); errors.As(err, &e) {
			row, column := e.Position()
			hint := "texts need quotes" // e's own text may have a part of a URL
			if strings.Contains(e.Error(), "already") {
				hint = "it has been defined before"
			}
			return fmt.Errorf("line %d, column %d: it is not valid TOML (%s)", row, column, hint)
		}
		return errors.New("it is not valid TOML")
	}
	if err := c.known(all, "default-profile", "profile"); err != nil {
		return err
	}
	name, err := textOf(all, "default-profile")
	if err != nil {
		return err
	}
	if name != "" && c.Default == "" {
		c.Default, c.From = name, file
	}
	tables, ok := all["profile"].(map[string]any)
	if all["profile"] != nil && !ok {
		return errors.New("profile is not a table: write [profile.NAME]")
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		in := func(err error) error { return fmt.Errorf("profile %q: %w", name, err) }
		table, ok := tables[name].(map[string]any)
		if !ok {
			return in(errors.New("it is not a table: write [profile.NAME]"))
		}
		p, err := c.profile(table)
		if err != nil {
			return in(err)
		}
		if clean, ok := open.WithoutPassword(p.Store); (!ok || clean != p.Store) && private != nil {
			return in(fmt.Errorf("store has a password, but of the file: %w; use password-file", private))
		}
		if p.Name, p.File = name, file; c.profiles[name] == nil {
			c.profiles[name] = p
		}
	}
	return nil
}

// profile reads one table.
func (c *Config) profile(table map[string]any) (*Profile, error) {
	err := c.known(table, "store", "password-file", "ttl", "labels")
	if err != nil {
		return nil, err
	}
	p := &Profile{Labels: map[string]string{}}
	if p.Store, err = textOf(table, "store"); err != nil {
		return nil, err
	}
	if p.PasswordFile, err = textOf(table, "password-file"); err != nil {
		return nil, err
	}
	if rest, ok := strings.CutPrefix(p.PasswordFile, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, errors.New("password-file: there is no home folder for ~/ (set HOME)")
		}
		p.PasswordFile = filepath.Join(home, rest)
	}
	if p.PasswordFile != "" && !filepath.IsAbs(p.PasswordFile) {
		return nil, errors.New("password-file: the path must be absolute, or begin with ~/")
	}
	if p.PasswordFile != "" && p.Store == "" {
		return nil, errors.New("password-file is for the store of the same profile: store is missing")
	}
	ttl, err := textOf(table, "ttl")
	if err == nil && ttl != "" {
		if p.TTL, err = c.parse(ttl); err != nil {
			err = errors.New(`ttl: expected a time, such as "15s"`) // that of parse may quote the text
		}
	}
	if err != nil {
		return nil, err
	}
	labels, ok := table["labels"].(map[string]any)
	if table["labels"] != nil && !ok {
		return nil, errors.New(`labels is not a table: write labels = { KEY = "VALUE" }`)
	}
	for k := range labels {
		if p.Labels[k], err = textOf(labels, k); err != nil {
			return nil, fmt.Errorf("labels: %w", err)
		}
	}
	return p, nil
}

// known refuses keys that are not allowed.
func (c *Config) known(table map[string]any, allowed ...string) error {
	for _, k := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(allowed, k) {
			return fmt.Errorf("the key %q is unknown%s; allowed are %s", k, c.meant(k, allowed),
				strings.Join(allowed, ", "))
		}
	}
	return nil
}

// textOf returns the text under a key, "" if there is none.
func textOf(table map[string]any, key string) (string, error) {
	v, ok := table[key]
	if !ok {
		return "", nil
	}
	text, ok := v.(string)
	if !ok || text == "" {
		return "", fmt.Errorf("%s: it must be a text in quotes that is not empty", key)
	}
	return text, nil
}
