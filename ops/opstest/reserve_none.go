//go:build !linux && !darwin

package opstest

import "errors"

func reserve(int) ([]byte, error) { return nil, errors.New("no lazily backed memory on this system") }

func release([]byte) {}
