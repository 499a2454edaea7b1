package gaze_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// README's table has every variable of the environment that the sources name, and no other.
func TestEnvironmentTable(t *testing.T) {
	named := map[string]string{} // variables, with a file that names each
	quoted := regexp.MustCompile(`"(GAZE_[A-Z_]+)"`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".go" && ext != ".py" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range quoted.FindAllSubmatch(source, -1) {
			named[string(m[1])] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(GAZE_[A-Z_]+)` \\|").FindAllSubmatch(readme, -1) {
		listed[string(m[1])] = true
	}
	for name, path := range named {
		if !listed[name] {
			t.Errorf("%s, which %s names, isn't in README's table", name, path)
		}
	}
	for name := range listed {
		if named[name] == "" {
			t.Errorf("README lists %s, which nothing reads", name)
		}
	}
}
