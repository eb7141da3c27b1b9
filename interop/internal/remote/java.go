package remote

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const javaNeeds = "a JDK 17 or newer, Maven, and a network for the first build " +
	"(Debian: apt-get install --no-install-recommends maven default-jdk-headless)"

// Java is a program in Java that Maven builds.
type Java struct {
	Folder string // has its pom.xml
	Target string // what the build writes to, below Folder
	Jar    string // the name of the program's file in Target
	Maven  string // an argument for Maven, or empty
}

// built are the class paths of what was built.
var built struct {
	sync.Mutex
	done map[Java]string
}

// ClassPath builds the program, if its sources have changed since the last build. It returns the
// class path.
func (j Java) ClassPath() (string, error) {
	built.Lock()
	defer built.Unlock()
	if classPath, ok := built.done[j]; ok {
		return classPath, nil
	}
	classPath, err := j.build()
	if err != nil {
		return "", err
	}
	if built.done == nil {
		built.done = map[Java]string{}
	}
	built.done[j] = classPath
	return classPath, nil
}

func (j Java) build() (string, error) {
	folder, err := filepath.Abs(j.Folder)
	if err != nil {
		return "", err
	}
	target := filepath.Join(folder, j.Target)
	classPath := filepath.Join(target, j.Jar) + string(os.PathListSeparator) + filepath.Join(target, "lib", "*")
	sum, err := sourceSum(folder)
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(target, "built-from")
	if built, err := os.ReadFile(stamp); err == nil && string(built) == sum {
		return classPath, nil
	}
	for _, program := range []string{"mvn", "javac"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w; these tests need %s", err, javaNeeds)
		}
	}
	var out bytes.Buffer
	// The first works if Maven has everything.
	for _, network := range []string{"--offline", "--no-transfer-progress"} {
		cmd := exec.Command("mvn", "--batch-mode", "--quiet", network, "-Dout="+j.Target)
		if j.Maven != "" {
			cmd.Args = append(cmd.Args, j.Maven)
		}
		cmd.Args = append(cmd.Args, "package")
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &out, &out
		if err = cmd.Run(); err == nil {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("the Java program does not build: %w; these tests need %s\n%s", err, javaNeeds, &out)
	}
	return classPath, os.WriteFile(stamp, []byte(sum), 0o600)
}

// sourceSum returns a digest of everything that the build depends on.
func sourceSum(folder string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(folder, path) // both are absolute
		if d.IsDir() && rel == "target" {
			return fs.SkipDir
		}
		if d.IsDir() || rel != "pom.xml" && !strings.HasSuffix(rel, ".java") {
			return nil
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n", rel, len(b))
		h.Write(b)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// Command returns the program, ready to start with this main class.
func (j Java) Command(t testing.TB, main string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Fatalf("%v; this test needs %s", err, javaNeeds)
	}
	classPath, err := j.ClassPath()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Djava.net.preferIPv4Stack=true", "-cp", classPath, main)
}
