package kernels

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Entry is a kernel in an image.
type Entry struct {
	Symbol string
	Params int // bytes of its parameters
}

// Inspect lists the kernels of a cubin or of PTX by symbol.
func Inspect(image []byte) ([]Entry, error) {
	var es []Entry
	var err error
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		es, err = inspectCubin(image)
	} else {
		es, err = inspectPTX(image)
	}
	slices.SortFunc(es, func(a, b Entry) int { return strings.Compare(a.Symbol, b.Symbol) })
	return es, err
}

// inspectCubin reads what ptxas leaves in a section .nv.info.SYMBOL beside each kernel's .text.SYMBOL: attributes of a format byte,
// a number byte, and either two bytes of value or two of length and then as many. Attribute 0x17 is a parameter: its number in four
// bytes, four of offsets, and a word whose upper 14 bits are its size.
func inspectCubin(image []byte) ([]Entry, error) {
	const parameter, sized = 0x17, 4
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("cubin: %w", err)
	}
	var es []Entry
	for _, s := range f.Sections {
		symbol, ok := strings.CutPrefix(s.Name, ".text.")
		if !ok {
			continue
		}
		info := f.Section(".nv.info." + symbol)
		if info == nil {
			return nil, fmt.Errorf("cubin: %s has no .nv.info", symbol)
		}
		b, err := info.Data()
		if err != nil {
			return nil, fmt.Errorf("cubin: %s: %w", symbol, err)
		}
		e, params := Entry{Symbol: symbol}, 0
		for len(b) >= 4 {
			n := 4
			if b[0] == sized {
				n += int(binary.LittleEndian.Uint16(b[2:]))
			}
			if b[1] == parameter && n >= 16 && len(b) >= 16 {
				params++
				e.Params = int(binary.LittleEndian.Uint32(b[12:]) >> 18)
			}
			b = b[min(n, len(b)):]
		}
		if params > 1 {
			return nil, fmt.Errorf("cubin: %s takes %d parameters, a kernel here takes one struct", symbol, params)
		}
		es = append(es, e)
	}
	return es, nil
}

var entry = regexp.MustCompile(`(?s)\.entry\s+(\w+)\s*\(([^)]*)\)`)

// inspectPTX takes kernels with one parameter, a struct by value, or none.
func inspectPTX(image []byte) ([]Entry, error) {
	var es []Entry
	for _, m := range entry.FindAllSubmatch(image, -1) {
		e := Entry{Symbol: string(m[1])}
		switch params := strings.Count(string(m[2]), ".param"); params {
		case 0:
		case 1:
			size := regexp.MustCompile(`\[(\d+)\]\s*$`).FindSubmatch(bytes.TrimSpace(m[2]))
			if size == nil {
				return nil, fmt.Errorf("PTX: %s takes no struct: %s", e.Symbol, bytes.TrimSpace(m[2]))
			}
			e.Params, _ = strconv.Atoi(string(size[1]))
		default:
			return nil, fmt.Errorf("PTX: %s takes %d parameters, a kernel here takes one struct", e.Symbol, params)
		}
		es = append(es, e)
	}
	if len(es) == 0 {
		return nil, fmt.Errorf("PTX: no kernel")
	}
	return es, nil
}
