package kernels

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed launch.h
var launchHeader string

var launchLine = regexp.MustCompile(`(?m)^#define GAZE_([A-Z0-9_]+) +(\d+) *, *(\d+) *, *(\d+) *, *(\d+) *$`)

// LaunchShapes are the numbers of launch.h that the host must know, by lower-case name without GAZE_, say "decode_128_r8_sm90a":
// threads, bytes of dynamic shared memory, rows of a tile and blocks a multiprocessor.
func LaunchShapes() (map[string][4]int, error) {
	shapes := map[string][4]int{}
	for _, m := range launchLine.FindAllStringSubmatch(launchHeader, -1) {
		var s [4]int
		if _, err := fmt.Sscan(strings.Join(m[2:], " "), &s[0], &s[1], &s[2], &s[3]); err != nil {
			return nil, fmt.Errorf("launch.h: %s: %w", m[0], err)
		}
		shapes[strings.ToLower(m[1])] = s
	}
	if len(shapes) == 0 {
		return nil, fmt.Errorf("launch.h has no shape")
	}
	return shapes, nil
}
