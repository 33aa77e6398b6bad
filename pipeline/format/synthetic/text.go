package synthetic

import (
	"math"
	"math/rand/v2"
	"strconv"
)

// vocabulary is some thousand words and phrases, and a table that maps random numbers to them: word
// i is about as frequent as 1/i, as in natural languages. It is the same for all seeds.
type vocabulary struct {
	words [wordCount]string // each followed by a space
	drawn [1 << 16]uint16   // by 16 random bits
}

const (
	wordCount      = 8192
	maxPhraseBytes = 48
)

func newVocabulary() *vocabulary {
	v := &vocabulary{}
	pcg := rand.NewPCG(1, 2)
	for i := range v.words {
		// Frequent words are short.
		w := make([]byte, 2+i*6/wordCount+int(pcg.Uint64()%4))
		for k := range w {
			w[k] = "etaoinshrdlucmfwypvbgkjqxz"[min(pcg.Uint64()%26, pcg.Uint64()%26)]
		}
		v.words[i] = string(w) + " "
		if i > 16 && i%3 == 0 { // a phrase
			v.words[i] = v.words[pcg.Uint64()%uint64(i)] + v.words[pcg.Uint64()%uint64(i)] + v.words[i-1]
			v.words[i] = v.words[i][max(len(v.words[i])-maxPhraseBytes, 0):]
		}
	}
	// The sum of 1/i up to n is about log n: divide it into equal shares.
	for k := range v.drawn {
		v.drawn[k] = uint16(min(math.Exp(float64(k)/(1<<16)*math.Log(wordCount))-1, wordCount-1))
	}
	return v
}

// line appends a JSON line. Words consist of lower-case letters, so nothing needs escaping.
func (m *maker) line(n uint64) {
	end := m.size()
	m.buffer = append(m.buffer, `{"id":`...)
	m.buffer = strconv.AppendUint(m.buffer, n, 10)
	m.buffer = append(m.buffer, `,"text":"`...)
	const tail = "\"}\n"
	head := len(m.buffer)
	for end -= len(tail); len(m.buffer) < end; {
		for v, k := m.pcg.Uint64(), 0; k < 4; k++ {
			m.buffer = append(m.buffer, m.words.words[m.words.drawn[uint16(v)]]...)
			v >>= 16
		}
	}
	m.buffer = append(m.buffer[:max(end, head)], tail...)
}
