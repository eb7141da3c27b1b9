// Package browser shows pages in a real browser without a window, for tests.
package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// programs are the names of browsers, the smallest first.
var programs = []string{"chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser",
	"google-chrome"}

// patience bounds each answer of the browser.
const patience = 2 * time.Minute

// Browser is a browser with one page. It speaks the DevTools protocol through a pipe, so it needs no port.
type Browser struct {
	t       testing.TB
	to      *os.File
	from    *bufio.Reader
	pipe    *os.File // of from
	number  int
	session string          // of the page
	seen    map[string]bool // the events since the last command
}

// Open starts a browser, which ends with the test. It fails the test if no browser is installed.
func Open(t testing.TB) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts a browser")
	}
	program, err := find()
	if err != nil {
		t.Fatal(err)
	}
	theirIn, to, err := os.Pipe()
	must(t, err)
	from, theirOut, err := os.Pipe()
	must(t, err)
	var log bytes.Buffer
	// The pages are the tests' own, and root has no sandbox.
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-extensions", "--user-data-dir="+t.TempDir(),
		"--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4, as the browser expects
	cmd.Stderr = &log                              // Wait also waits for the browser's own processes, which have it too
	cmd.WaitDelay = patience
	must(t, cmd.Start())
	_, _ = theirIn.Close(), theirOut.Close()
	b := &Browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<16), pipe: from, seen: map[string]bool{}}
	t.Cleanup(func() {
		if err := b.ask("", "Browser.close", nil, nil); err != nil {
			_ = cmd.Process.Kill()
		}
		_, _ = to.Close(), from.Close()
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("%s: %v\n%s", program, err, log.String())
		}
	})
	var target struct{ TargetID, SessionID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	b.do("Page.enable", nil, nil)
	return b
}

func find() (string, error) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %q is installed; this test needs a browser (Debian: apt-get install %s)", programs, programs[0])
}

// View is how a page is looked at.
type View struct {
	Width, Height int
	Dark          bool // the reader prefers a dark page
	Print         bool // the page looks as on paper
}

// Show opens a file, at the element with the id fragment if that is not empty.
func (b *Browser) Show(file, fragment string, v View) {
	b.t.Helper()
	path, err := filepath.Abs(file)
	must(b.t, err)
	b.Visit((&url.URL{Scheme: "file", Path: filepath.ToSlash(path), Fragment: fragment}).String(), v)
}

// Visit opens an address.
func (b *Browser) Visit(address string, v View) {
	b.t.Helper()
	scheme, media := "light", ""
	if v.Dark {
		scheme = "dark"
	}
	if v.Print {
		media = "print"
	}
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": v.Width, "height": v.Height, "deviceScaleFactor": 1,
		"mobile": v.Width < 500}, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"media": media,
		"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	// A change of the fragment alone would not load the page.
	b.load("about:blank")
	b.load(address)
}

func (b *Browser) load(url string) {
	b.t.Helper()
	delete(b.seen, "Page.loadEventFired")
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.await("Page.loadEventFired")
}

// Loaded waits for the next page, to which something on this one leads.
func (b *Browser) Loaded() {
	b.t.Helper()
	delete(b.seen, "Page.loadEventFired")
	b.await("Page.loadEventFired")
}

// Ask evaluates an expression of JavaScript on the page, and puts its value into answer.
func (b *Browser) Ask(expression string, answer any) {
	b.t.Helper()
	var reply struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails json.RawMessage
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &reply)
	if reply.ExceptionDetails != nil {
		b.t.Fatalf("%s\n%s", expression, reply.ExceptionDetails)
	}
	must(b.t, json.Unmarshal(reply.Result.Value, answer))
}

// Press presses a key, such as ArrowDown.
func (b *Browser) Press(key string, code int) {
	b.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		b.do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key,
			"windowsVirtualKeyCode": code}, nil)
	}
}

// Download clicks on the first element that the selector finds, and returns the file that the browser saves.
func (b *Browser) Download(selector string) []byte {
	b.t.Helper()
	dir := b.t.TempDir()
	b.do("Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir,
		"eventsEnabled": true}, nil)
	delete(b.seen, downloaded)
	var clicked bool
	b.Ask(fmt.Sprintf("document.querySelector(%q).click(), true", selector), &clicked)
	b.await(downloaded)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(b.t, err)
	if len(files) != 1 {
		b.t.Fatalf("saved: %v", files)
	}
	text, err := os.ReadFile(files[0])
	must(b.t, err)
	return text
}

// downloaded is a Browser.downloadProgress of a complete file.
const downloaded = "Browser.downloadProgress completed"

// Picture returns what is in view, and keeps it as an artifact of the test.
func (b *Browser) Picture(name string) image.Image {
	b.t.Helper()
	var shot struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), data, 0o644))
	p, err := png.Decode(bytes.NewReader(data))
	must(b.t, err)
	return p
}

// do gives a command to the page, and puts its result into answer.
func (b *Browser) do(method string, params map[string]any, answer any) {
	b.t.Helper()
	if err := b.ask(b.session, method, params, answer); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *Browser) ask(session, method string, params map[string]any, answer any) error {
	b.number++
	command := map[string]any{"id": b.number, "method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
	}
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		m, err := b.next()
		switch {
		case err != nil:
			return err
		case m.ID != b.number:
			continue
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case answer == nil:
			return nil
		}
		return json.Unmarshal(m.Result, answer)
	}
}

type message struct {
	ID     int
	Method string
	Params struct{ State string }
	Result json.RawMessage
	Error  *struct{ Message string }
}

// next reads a message, and notes which event it is.
func (b *Browser) next() (m message, err error) {
	if err := b.pipe.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return m, err
	}
	text, err := b.from.ReadBytes(0)
	if err != nil {
		return m, fmt.Errorf("the browser does not answer: %w", err)
	}
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil && m.Method == "" {
		return m, err
	}
	event := m.Method
	if m.Params.State != "" {
		event += " " + m.Params.State
	}
	b.seen[event] = true
	return m, nil
}

func (b *Browser) await(event string) {
	b.t.Helper()
	for !b.seen[event] {
		_, err := b.next()
		must(b.t, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
