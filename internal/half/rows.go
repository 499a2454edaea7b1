package half

// The functions here convert whole rows: dst[i] from src[i] for every element of src. dst must be at least as long. Full vectors
// of 16 go to the kernels where there are any, which say how many elements they did; the rest is converted one by one.

// DecodeF16 converts src to float32.
func DecodeF16(dst []float32, src []F16) {
	dst = dst[:len(src)]
	for i := decodeF16(dst, src); i < len(src); i++ {
		dst[i] = src[i].Float32()
	}
}

// DecodeBF16 converts src to float32.
func DecodeBF16(dst []float32, src []BF16) {
	dst = dst[:len(src)]
	for i := decodeBF16(dst, src); i < len(src); i++ {
		dst[i] = src[i].Float32()
	}
}

// DecodeE4M3 converts src to float32.
func DecodeE4M3(dst []float32, src []E4M3) {
	dst = dst[:len(src)]
	for i := decodeE4M3(dst, src); i < len(src); i++ {
		dst[i] = src[i].Float32()
	}
}

// EncodeF16 converts src as [F16FromFloat32] does.
func EncodeF16(dst []F16, src []float32) {
	dst = dst[:len(src)]
	for i := encodeF16(dst, src); i < len(src); i++ {
		dst[i] = F16FromFloat32(src[i])
	}
}

// EncodeBF16 converts src as [BF16FromFloat32] does.
func EncodeBF16(dst []BF16, src []float32) {
	dst = dst[:len(src)]
	for i := encodeBF16(dst, src); i < len(src); i++ {
		dst[i] = BF16FromFloat32(src[i])
	}
}

// EncodeE4M3 converts src as [E4M3FromFloat32] does.
func EncodeE4M3(dst []E4M3, src []float32) {
	dst = dst[:len(src)]
	for i := encodeE4M3(dst, src); i < len(src); i++ {
		dst[i] = E4M3FromFloat32(src[i])
	}
}
