package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/profile"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/open"
)

const aboutConfig = `Show the settings that are in force, and where each of them comes from. Passwords are not shown.

Flags count more than the environment, and the environment more than files:

  store      --store, --profile, $HOLDFAST_URL, the profile, or the file of this user
  password   in the URL or the file that its password-file= names, else the file that
             $HOLDFAST_PASSWORD_FILE names, else $CREDENTIALS_DIRECTORY/holdfast-password
             (systemd: LoadCredential=holdfast-password:PATH), else that of the profile, for
             the store of the profile only
  profile    --profile, $HOLDFAST_PROFILE, or default-profile in a file
  ttl        --ttl, the profile, or 15s
  labels     --label, and the profile

Profiles are in $XDG_CONFIG_HOME/holdfast/config.toml (~/.config if that is not set) and in
/etc/holdfast/config.toml. $HOLDFAST_CONFIG names one file in place of both:

  default-profile = "staging"

  [profile.prod]
  store = "redis://locks@redis.example:6379"
  password-file = "~/.config/holdfast/prod-password"
  ttl = "20s"
  labels = { team = "payments" }

A file of profiles that other users may write is refused, and so is a file with a password that
others may read.`

func (a *app) configCommand() *cobra.Command {
	var out format
	c := &cobra.Command{
		Use:   "config",
		Short: "Show the settings in force, and where they come from",
		Long:  aboutConfig,
		Example: `  holdfast config
  holdfast config --profile prod
  $EDITOR "$(holdfast config path)"`,
		Args: commandsOnly,
		RunE: ours(func(*cobra.Command, []string) error { return a.config(out) }),
	}
	out.register(c, "text", "json")
	c.AddCommand(&cobra.Command{
		Use:   "path",
		Short: "Show the file of this user that may have profiles",
		Args:  noArguments,
		RunE: ours(func(*cobra.Command, []string) error {
			files, _, err := profile.Paths()
			if err != nil {
				return &failure{exitConfig, err}
			}
			_, err = fmt.Fprintln(a.stdout, files[0])
			return err
		}),
	})
	return c
}

// needsSettings reports whether a command uses the settings. The others work even if a file with
// profiles is wrong.
func needsSettings(c *cobra.Command) bool {
	path := strings.Fields(c.CommandPath())[1:]
	without := []string{"help", "version", "completion", "judge", "lab", "verify-worker", keeperName}
	return len(path) > 0 && !slices.Contains(without, path[0]) && strings.Join(path, " ") != "config path"
}

// setting is one row of "holdfast config".
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// config shows the settings, and returns an error if the password file cannot be used.
func (a *app) config(out format) error {
	list := a.set.list(a.ttl)
	var err error
	if out == "text" {
		rows := [][]string{{"SETTING", "VALUE", "FROM"}}
		for _, r := range list {
			rows = append(rows, []string{show(r.Name), show(r.Value), show(r.Source)})
		}
		err = table(a.stdout, rows)
	} else {
		err = writeJSON(a.stdout, configJSON{schema, list, a.set.files}, true)
	}
	file := cmp.Or(a.set.file, a.set.fileOfURL())
	if err != nil || file == "" {
		return err
	}
	if _, err := storeurl.ReadPassword(file); err != nil {
		return &failure{exitConfig, err}
	}
	return nil
}

// configJSON is what "holdfast config -o json" writes.
type configJSON struct {
	Schema   string    `json:"schema"`
	Settings []setting `json:"settings"`
	Files    []string  `json:"files"`
}

// list returns the settings without their secrets.
func (s *settings) list(ttl time.Duration) []setting {
	list := []setting{{"store", s.shown(), s.at}, {"ttl", span(ttl), s.ttlAt}}
	switch {
	case s.file != "":
		list = append(list, setting{"password", "in the file " + s.file, s.fileAt})
	case s.fileOfURL() != "":
		list = append(list, setting{"password", "in the file " + s.fileOfURL(), s.at})
	case s.url != "" && s.hasSecret():
		list = append(list, setting{"password", storeurl.Mask, s.at})
	default:
		list = append(list, setting{"password", "none", origin})
	}
	if s.profile.Name != "" {
		list = append(list, setting{"profile", s.profile.Name, s.named})
	}
	for _, k := range slices.Sorted(maps.Keys(s.profile.Labels)) {
		list = append(list, setting{"label " + k, s.profile.Labels[k], s.of(s.profile)})
	}
	return list
}

// shown returns the URL of the store without its passwords.
func (s *settings) shown() string {
	if s.url == "" {
		return "a file of this user"
	}
	url := s.url
	if s.file != "" { // a row of its own
		url, _, _ = cutLast(url, storeurl.PasswordFile+"=")
	}
	clean, ok := open.WithoutPassword(url)
	if !ok {
		return "(it cannot be parsed)"
	}
	return clean
}

// cutLast cuts text before the last separator that begins a parameter.
func cutLast(text, parameter string) (before, after string, ok bool) {
	i := strings.LastIndex(text, parameter)
	if i < 1 {
		return text, "", false
	}
	return text[:i-1], text[i+len(parameter):], true
}

// hasSecret reports whether the URL has a password in it.
func (s *settings) hasSecret() bool {
	clean, ok := open.WithoutPassword(s.url)
	return !ok || clean != s.url
}

// fileOfURL returns the password file that the user has put into the URL.
func (s *settings) fileOfURL() string {
	_, query, err := storeurl.Parse(s.url)
	if err != nil || s.file != "" {
		return ""
	}
	return query.Get(storeurl.PasswordFile)
}
