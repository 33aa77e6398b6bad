package read

import "fmt"

// failures remembers the last few distinct errors.
type failures struct {
	total uint64
	list  []failure // newest last
}

type failure struct {
	text  string
	times uint64
}

const keptFailures = 8

// note records an error for status. The scanner and the gatherer call it with their locks held.
func (f *Fetcher) note(err error) {
	f.told(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures.add(err)
}

func (l *failures) add(err error) {
	l.total++
	text, times := err.Error(), uint64(1)
	for i, x := range l.list {
		if x.text == text {
			times += x.times
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
	if len(l.list) == keptFailures {
		l.list = append(l.list[:0], l.list[1:]...)
	}
	l.list = append(l.list, failure{text, times})
}

func (l *failures) last() []string {
	out := make([]string, 0, len(l.list))
	for _, x := range l.list {
		if x.times > 1 {
			x.text += fmt.Sprintf(" (%d times)", x.times)
		}
		out = append(out, x.text)
	}
	return out
}
