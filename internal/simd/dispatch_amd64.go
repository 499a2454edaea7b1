//go:build !purego

package simd

func dot(a, b []float32) float32 {
	switch active {
	case AVX512:
		return dotAVX512(&a[0], &b[0], len(a))
	case AVX2:
		return dotAVX2(&a[0], &b[0], len(a))
	}
	return dotGo(a, b)
}

func axpy(alpha float32, x, y []float32) {
	switch active {
	case AVX512:
		axpyAVX512(alpha, &x[0], &y[0], len(x))
	case AVX2:
		axpyAVX2(alpha, &x[0], &y[0], len(x))
	default:
		axpyGo(alpha, x, y)
	}
}

func scale(alpha float32, x []float32) {
	switch active {
	case AVX512:
		scaleAVX512(alpha, &x[0], len(x))
	case AVX2:
		scaleAVX2(alpha, &x[0], len(x))
	default:
		scaleGo(alpha, x)
	}
}

func maximum(x []float32) float32 {
	switch active {
	case AVX512:
		return maxAVX512(&x[0], len(x))
	case AVX2:
		return maxAVX2(&x[0], len(x))
	}
	return maxGo(x)
}

func expSum(s []float32, m float32) float32 {
	switch active {
	case AVX512:
		return expSumAVX512(&s[0], len(s), m)
	case AVX2:
		return expSumAVX2(&s[0], len(s), m)
	}
	return expSumGo(s, m)
}

// dotRows covers q with the tallest tiles that fit and k in groups of four rows. What remains of k is computed as the last four
// rows again where there are that many, else as four times the same row: so every result is added up in the same order.
func dotRows(dst []float32, ldd int, q []float32, ldq, nq int, k []float32, ldk, nk, d int) {
	if active == Portable {
		dotRowsGo(dst, ldd, q, ldq, nq, k, ldk, nk, d)
		return
	}
	if nk < 4 {
		var four [4]float32
		for i := range nq {
			for j := range nk {
				dotTile(four[:], 4, q[i*ldq:], ldq, 1, k[j*ldk:], 0, 1, d)
				dst[i*ldd+j] = four[0]
			}
		}
		return
	}
	for i := 0; i < nq; {
		rows := dotTile(dst[i*ldd:], ldd, q[i*ldq:], ldq, nq-i, k, ldk, nk/4, d)
		if nk%4 != 0 {
			j := nk - 4
			dotTile(dst[i*ldd+j:], ldd, q[i*ldq:], ldq, rows, k[j*ldk:], ldk, 1, d)
		}
		i += rows
	}
}

// dotTile computes up to nq rows against 4·groups rows of k and returns how many rows it took.
func dotTile(dst []float32, ldd int, q []float32, ldq, nq int, k []float32, ldk, groups, d int) (rows int) {
	pd, pq, pk := &dst[0], &q[0], &k[0]
	if active == AVX512 {
		switch {
		case nq >= 6:
			dotRows6AVX512(pd, ldd, pq, ldq, pk, ldk, groups, d)
			return 6
		case nq >= 4:
			dotRows4AVX512(pd, ldd, pq, ldq, pk, ldk, groups, d)
			return 4
		case nq >= 2:
			dotRows2AVX512(pd, ldd, pq, ldq, pk, ldk, groups, d)
			return 2
		}
		dotRows1AVX512(pd, ldd, pq, ldq, pk, ldk, groups, d)
		return 1
	}
	switch {
	case nq >= 3 && nq != 4:
		dotRows3AVX2(pd, ldd, pq, ldq, pk, ldk, groups, d)
		return 3
	case nq >= 2:
		dotRows2AVX2(pd, ldd, pq, ldq, pk, ldk, groups, d)
		return 2
	}
	dotRows1AVX2(pd, ldd, pq, ldq, pk, ldk, groups, d)
	return 1
}

// axpyRows covers o with the tallest tiles that fit, 64 (AVX-512) or 32 (AVX2) columns wide.
func axpyRows(o []float32, ldo, nq int, p []float32, ldp int, v []float32, ldv, nk, d int) {
	if active == Portable {
		axpyRowsGo(o, ldo, nq, p, ldp, v, ldv, nk, d)
		return
	}
	for i := 0; i < nq; {
		rows := 0
		for c := 0; c < d; {
			var width int
			rows, width = axpyTile(o[i*ldo+c:], ldo, nq-i, p[i*ldp:], ldp, v[c:], ldv, nk, d-c)
			c += width
		}
		i += rows
	}
}

// axpyTile adds nk rows of v to up to nq rows and width columns of o and returns how many of each it took; the rows depend on nq
// alone.
func axpyTile(o []float32, ldo, nq int, p []float32, ldp int, v []float32, ldv, nk, width int) (rows, columns int) {
	po, pp, pv := &o[0], &p[0], &v[0]
	if active == AVX512 {
		width = min(width, 64)
		switch {
		case nq >= 6:
			axpyRows6AVX512(po, ldo, pp, ldp, pv, ldv, nk, width)
			return 6, width
		case nq >= 4:
			axpyRows4AVX512(po, ldo, pp, ldp, pv, ldv, nk, width)
			return 4, width
		case nq >= 2:
			axpyRows2AVX512(po, ldo, pp, ldp, pv, ldv, nk, width)
			return 2, width
		}
		axpyRows1AVX512(po, ldo, pp, ldp, pv, ldv, nk, width)
		return 1, width
	}
	rows = min(nq, 3)
	if nq == 4 {
		rows = 2
	}
	if width < 32 {
		width = min(width, 8)
		for i := range rows {
			axpyRest1AVX2(&o[i*ldo], ldo, &p[i*ldp], ldp, pv, ldv, nk, width)
		}
		return rows, width
	}
	switch rows {
	case 3:
		axpyRows3AVX2(po, ldo, pp, ldp, pv, ldv, nk)
	case 2:
		axpyRows2AVX2(po, ldo, pp, ldp, pv, ldv, nk)
	default:
		axpyRows1AVX2(po, ldo, pp, ldp, pv, ldv, nk)
	}
	return rows, 32
}
