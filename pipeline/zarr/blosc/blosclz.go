package blosc

import "errors"

var errBlosclz = errors.New("blosclz: the stream is damaged")

// decodeBlosclz decodes a blosclz stream, a sequence of
//
//	000nnnnn  n+1 literals follow
//	lllddddd  a match of l+2 bytes (l = 7: more bytes add to it, up to one below 255), at the
//	          distance d<<8 + a byte + 1; if d and that byte are all ones, plus a u16be
//
// The upper 3 bits of the first byte are ignored.
func decodeBlosclz(dst, src []byte) error {
	const farthest = 31<<8 | 255
	at, control := 0, byte(0)
	if len(src) == 0 {
		return errBlosclz
	}
	control, src = src[0]&31, src[1:]
	for {
		if control < 32 {
			n := int(control) + 1
			if n > len(src) || n > len(dst)-at {
				return errBlosclz
			}
			copy(dst[at:], src[:n])
			at, src = at+n, src[n:]
		} else {
			n, distance := int(control>>5)+2, int(control&31)<<8
			if control>>5 == 7 {
				for {
					if len(src) == 0 {
						return errBlosclz
					}
					more := src[0]
					n, src = n+int(more), src[1:]
					if more < 255 {
						break
					}
				}
			}
			if len(src) == 0 {
				return errBlosclz
			}
			distance += int(src[0])
			src = src[1:]
			if distance == farthest {
				if len(src) < 2 {
					return errBlosclz
				}
				distance += int(src[0])<<8 | int(src[1])
				src = src[2:]
			}
			distance++
			if distance > at || n > len(dst)-at {
				return errBlosclz
			}
			copyMatch(dst[at:at+n], dst[at-distance:], distance)
			at += n
		}
		if len(src) == 0 {
			break
		}
		control, src = src[0], src[1:]
	}
	return sized("blosclz", at, len(dst), nil)
}

// copyMatch fills dst from src, which begins distance bytes before dst and may overlap it.
func copyMatch(dst, src []byte, distance int) {
	if distance >= len(dst) {
		copy(dst, src)
		return
	}
	n := copy(dst, src[:distance])
	for n < len(dst) {
		n += copy(dst[n:], dst[:n])
	}
}
