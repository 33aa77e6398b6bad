package rows

import (
	"encoding/binary"
	"strconv"
)

// Days of the years 0000 to 9999, relative to 1970-01-01.
const (
	firstDay = -719528
	lastDay  = 2932896

	secondsOfDay = 24 * 60 * 60
	unixJulian   = 2440588 // the Julian day of 1970-01-01
)

// perSecond returns the number of units in a second.
func (u Unit) perSecond() int64 {
	switch u {
	case Millis:
		return 1e3
	case Micros:
		return 1e6
	case Nanos:
		return 1e9
	}
	return 1
}

// appendDate appends a date as a string, or its days as a string if the year has not four digits.
func appendDate(dst []byte, days int64) []byte {
	dst = append(dst, '"')
	if days < firstDay || days > lastDay {
		dst = strconv.AppendInt(dst, days, 10)
	} else {
		dst = appendDay(dst, days)
	}
	return append(dst, '"')
}

// appendTime appends a time as a string, or the number as a string if it is not within a day.
func appendTime(dst []byte, v int64, unit Unit) []byte {
	dst = append(dst, '"')
	if v < 0 || v >= secondsOfDay*unit.perSecond() {
		dst = strconv.AppendInt(dst, v, 10)
	} else {
		dst = appendOfDay(dst, v, unit)
	}
	return append(dst, '"')
}

// appendTimestamp appends a timestamp as a string, or the number as a string if the year has not
// four digits.
func appendTimestamp(dst []byte, v int64, unit Unit, utc bool) []byte {
	perDay := secondsOfDay * unit.perSecond()
	days, rest := v/perDay, v%perDay
	if rest < 0 {
		days, rest = days-1, rest+perDay
	}
	dst = append(dst, '"')
	if days < firstDay || days > lastDay {
		dst = strconv.AppendInt(dst, v, 10)
	} else {
		dst = appendMoment(dst, days, rest, unit, utc)
	}
	return append(dst, '"')
}

// appendInt96 appends a timestamp of 12 bytes, or its two numbers if the year has not four digits or
// the nanoseconds are not within a day.
func appendInt96(dst, raw []byte, utc bool) []byte {
	nanos := int64(binary.LittleEndian.Uint64(raw))
	days := int64(int32(binary.LittleEndian.Uint32(raw[8:]))) - unixJulian
	dst = append(dst, '"')
	if days < firstDay || days > lastDay || nanos < 0 || nanos >= secondsOfDay*Nanos.perSecond() {
		dst = strconv.AppendInt(dst, days, 10)
		dst = strconv.AppendInt(append(dst, ' '), nanos, 10)
	} else {
		dst = appendMoment(dst, days, nanos, Nanos, utc)
	}
	return append(dst, '"')
}

func appendMoment(dst []byte, days, ofDay int64, unit Unit, utc bool) []byte {
	dst = appendOfDay(append(appendDay(dst, days), 'T'), ofDay, unit)
	if utc {
		dst = append(dst, 'Z')
	}
	return dst
}

// appendDay appends YYYY-MM-DD. The year begins in March here, so that the leap day is its last.
func appendDay(dst []byte, days int64) []byte {
	const perEra = 146097 // days of 400 years
	days -= firstDay + 60 // since 0000-03-01
	days += perEra        // one era earlier, so that no number is negative
	era := days / perEra
	ofEra := days % perEra
	ofEraYear := (ofEra - ofEra/1460 + ofEra/36524 - ofEra/146096) / 365
	ofYear := ofEra - (365*ofEraYear + ofEraYear/4 - ofEraYear/100)
	month := (5*ofYear + 2) / 153 // 0 is March
	day := ofYear - (153*month+2)/5 + 1
	year := ofEraYear + 400*(era-1)
	if month += 3; month > 12 {
		month, year = month-12, year+1
	}
	return append(dst,
		'0'+byte(year/1000), '0'+byte(year/100%10), '0'+byte(year/10%10), '0'+byte(year%10), '-',
		'0'+byte(month/10), '0'+byte(month%10), '-',
		'0'+byte(day/10), '0'+byte(day%10))
}

// appendOfDay appends hh:mm:ss, and a point and the digits of the unit if it has any.
func appendOfDay(dst []byte, v int64, unit Unit) []byte {
	second, fraction := v/unit.perSecond(), v%unit.perSecond()
	h, m, s := byte(second/3600), byte(second/60%60), byte(second%60)
	dst = append(dst, '0'+h/10, '0'+h%10, ':', '0'+m/10, '0'+m%10, ':', '0'+s/10, '0'+s%10)
	if unit == Seconds {
		return dst
	}
	var digits [1 + Nanos]byte
	digits[0] = '.'
	for i := unit; i > 0; i-- {
		digits[i] = '0' + byte(fraction%10)
		fraction /= 10
	}
	return append(dst, digits[:1+unit]...)
}
