package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/profile"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/open"
)

// The environment variables about settings, besides envURL.
const (
	envProfile      = "HOLDFAST_PROFILE"       // the profile to use
	envPasswordFile = "HOLDFAST_PASSWORD_FILE" // a file with the password of the store
	envCredentials  = "CREDENTIALS_DIRECTORY"  // of systemd, with the files of LoadCredential=
	credential      = "holdfast-password"      // the name of such a file
)

// settings are what is in force: flags count more than the environment, and that more than files.
// A profile that a flag names counts more than the URL in the environment.
type settings struct {
	url     string // of the store, with its password or the file of it; "": the embedded one
	at      string // where url is from
	file    string // of the password, "" if there is none
	fileAt  string
	profile *profile.Profile // never nil; empty without a profile
	named   string           // where the name of the profile is from
	ttlAt   string
	files   []string // that may have profiles
}

// origin is where a setting comes from that the user has not given.
const origin = "default"

// resolve finds the settings for a command.
func (a *app) resolve(c *cobra.Command) error {
	flag := func(name string) bool { return c.Flags().Changed(name) }
	if flag("store") && a.store == "" { // most likely a variable that is not set
		return usagef("--store is empty: name a store, or leave the flag out for $%s or the file of this user", envURL)
	}
	if flag("profile") && a.profile == "" {
		return usagef("--profile is empty: name a profile, or leave the flag out for $%s", envProfile)
	}
	s := &settings{profile: &profile.Profile{}, ttlAt: origin}
	if err := s.load(a.profile); err != nil {
		return &failure{exitConfig, err}
	}
	p := s.profile
	switch {
	case a.store != "":
		s.url, s.at = a.store, "--store"
	case a.profile != "" && p.Store != "":
		s.url, s.at = p.Store, s.of(p)
	case os.Getenv(envURL) != "":
		s.url, s.at = ownURL(), envURL
	case p.Store != "":
		s.url, s.at = p.Store, s.of(p)
	default:
		s.at = origin
	}
	s.password()
	switch {
	case flag("ttl"):
		s.ttlAt = "--ttl"
	case p.TTL != 0:
		a.ttl, s.ttlAt = p.TTL, s.of(p)
	}
	a.set = s
	if err := checkTTL(a.ttl); err != nil && s.ttlAt != "--ttl" {
		return &failure{exitConfig, fmt.Errorf("%s: %w", s.ttlAt, err)}
	} else if err != nil {
		return err
	}
	return nil
}

// load reads the files, and finds the profile: that of the flag, of the environment, or of the files.
func (s *settings) load(flag string) error {
	files, must, err := profile.Paths()
	if err != nil {
		return err
	}
	s.files = files
	all, err := profile.Load(files, must, parseTime, meant)
	if err != nil {
		return err
	}
	name := flag
	switch {
	case flag != "":
		s.named = "--profile"
	case os.Getenv(envProfile) != "":
		name, s.named = os.Getenv(envProfile), envProfile
	case all.Default != "":
		name, s.named = all.Default, "default-profile in "+all.From
	default:
		return nil
	}
	if s.profile, err = all.Find(name); err != nil {
		return fmt.Errorf("%s: %w", s.named, err)
	}
	return nil
}

// of says where the settings of a profile are.
func (s *settings) of(p *profile.Profile) string { return "profile " + show(p.Name) + " in " + p.File }

// password finds the file of the password, if url has no password. A file that a profile names is
// only for the store of that profile.
func (s *settings) password() {
	path, at := os.Getenv(envPasswordFile), envPasswordFile
	if dir := os.Getenv(envCredentials); path == "" && filepath.IsAbs(dir) {
		file := filepath.Join(dir, credential)
		if _, err := os.Stat(file); err == nil {
			path, at = file, envCredentials
		}
	}
	if own := s.profile.PasswordFile; path == "" && own != "" && s.url == s.profile.Store {
		path, at = own, s.of(s.profile)
	}
	if path == "" {
		return
	}
	if full, ok := open.WithPasswordFile(s.url, path); ok {
		s.url, s.file, s.fileAt = full, path, at
	}
}

// url returns the URL of the store to use; "" is the embedded one.
func (a *app) url() string {
	if a.set != nil {
		return a.set.url
	}
	return cmp.Or(a.store, os.Getenv(envURL)) // an error before the settings are known
}

// storeAt says where the URL of the store is from if no flag has it, else "".
func (a *app) storeAt() string {
	if a.set == nil || a.set.at == origin || a.set.at == "--store" {
		return ""
	}
	return a.set.at
}

// labelled returns the labels of the profile, with those of the command line in their place.
func (a *app) labelled(own labels) labels {
	if a.set == nil || len(a.set.profile.Labels) == 0 {
		return own
	}
	all := labels(maps.Clone(a.set.profile.Labels))
	maps.Copy(all, own)
	return all
}

// passwordGiven reports whether the store will get a password.
func passwordGiven(u *url.URL) bool {
	_, given := u.User.Password()
	return given || u.Query().Has(storeurl.PasswordFile)
}

// hintNested is the advice for a command whose surrounding holdfast has ended, or cannot be asked.
const hintNested = `inside "holdfast run" there is no password in ` + envURL +
	`: set it again, name a file with ` + envPasswordFile + `, or give the URL with --store`

// nestedWithoutPassword reports whether a store refuses this process because the surrounding holdfast
// has taken the password out of the environment.
func (a *app) nestedWithoutPassword(err error, u *url.URL) bool {
	return errors.Is(err, holdfast.ErrRefused) && a.store == "" && a.profile == "" && !passwordGiven(u) &&
		os.Getenv(envHeld) != "" && os.Getenv(envURL) != ""
}
