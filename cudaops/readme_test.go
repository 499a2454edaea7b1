package cudaops

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the support table into README.md")

// TestReadme: README shows the support table of this program.
func TestReadme(t *testing.T) {
	forReal(t)
	const path, begin, end = "../README.md", "<!-- cudaops.SupportTable -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	shown, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("README.md has no %q with %q after it", begin, end)
	}
	var table bytes.Buffer
	if err := SupportTable(&table); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if shown != table.String() {
		t.Errorf("README.md shows\n%s\nwant (go test ./cudaops -run Readme -update)\n%s", shown, table.String())
	}
}
