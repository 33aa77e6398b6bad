package decode

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// board is what an owner of a set knows of its pieces, under a lock of its own that it
// holds while it assigns and takes back, as a fetcher does.
type board struct {
	mu     sync.Mutex
	rng    *rand.Rand
	loads  map[int]*Load // that are on their way
	there  map[int]bool  // pieces that are kept
	begun  int           // loads that were given to the set, or made in passing
	ended  map[*Load]string
	wrong  []string
	change sync.Cond
}

func (b *board) end(p *Load, how string) {
	if was := b.ended[p]; was != "" {
		b.wrong = append(b.wrong, was+", then "+how)
	}
	if b.loads[p.Piece] != p {
		b.wrong = append(b.wrong, how+" of what was not on its way")
	}
	b.ended[p] = how
	delete(b.loads, p.Piece)
	b.change.Broadcast()
}

// Loads come, are taken back, refused memory and dropped in whatever order: each ends
// exactly once, with the right bytes, and nobody waits for ever.
func TestEveryLoadEndsExactlyOnceUnderAnySchedule(t *testing.T) {
	for _, shape := range []readtest.Shape{
		oneMember,
		{Codec: "zst", Shards: 3, Records: 60, MaxBytes: 3000, Member: 7},
		{Codec: "gz", Shards: 2, Records: 40, MaxBytes: 4000, MemberBytes: 10_000},
	} {
		for seed := range uint64(4) {
			o, set := newOwner(t, shape)
			set.o.Decoders = 1 + int(seed)%3
			b := &board{
				rng: rand.New(rand.NewPCG(seed, 7)), loads: map[int]*Load{}, there: map[int]bool{},
				ended: map[*Load]string{},
			}
			b.change.L = &b.mu
			set.owner = boardWork{o, set, b}
			b.play(o, set, 600)
		}
	}
}

// play asks for pieces, and takes some back, until so many have been asked for and all
// that are waited for have ended.
func (b *board) play(o *owner, set *Set, asks int) {
	t := o.data
	var users sync.WaitGroup
	for user := range 3 {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(user), uint64(asks)))
			for range asks / 3 {
				number := rng.IntN(len(t.Records))
				u := budget.Urgency(1 + rng.IntN(2))
				b.mu.Lock()
				p := b.ask(o, set, number, u)
				switch {
				case p == nil:
					delete(b.there, number)
				case rng.IntN(3) == 0: // nobody wants it any more
					if set.TakeBack(p) {
						b.end(p, "taken back")
					}
				case rng.IntN(2) == 0:
					for b.ended[p] == "" {
						b.change.Wait()
					}
				}
				b.mu.Unlock()
			}
		})
	}
	users.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.loads) > 0 {
		b.change.Wait()
	}
	if len(b.ended) != b.begun {
		b.wrong = append(b.wrong, "some never ended")
	}
	require.Empty(o.t, b.wrong)
}

// ask gives the load of a piece that is on its way, or begins one; nil where it is
// there, or there is no room. It is called with mu held.
func (b *board) ask(o *owner, set *Set, number int, u budget.Urgency) *Load {
	p := b.loads[number]
	if p != nil || b.there[number] {
		return p
	}
	p = o.load(number)
	if set.Assign(p, u) == nil {
		if u == budget.Demand {
			b.wrong = append(b.wrong, "a load that is waited for was refused")
		}
		return nil
	}
	b.begun++
	b.loads[number] = p
	return p
}

// meanwhile does what others do just before a decoder gets the answer to a question
// about a piece: they ask for that one, or for one beside it.
func (w boardWork) meanwhile(number int) {
	if w.b.rng.IntN(3) == 0 {
		beside := min(max(number-2+w.b.rng.IntN(5), 0), len(w.data.Records)-1)
		w.b.ask(w.owner, w.set, beside, budget.Prefetch)
	}
}

// boardWork answers decoders from a board.
type boardWork struct {
	*owner
	set *Set
	b   *board
}

func (w boardWork) Room(l *Load) bool {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.meanwhile(l.Piece)
	if w.b.rng.IntN(5) == 0 {
		w.b.end(l, "no room")
		return false
	}
	return true
}

func (w boardWork) Passing(number int) *Load {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.meanwhile(number)
	if w.b.there[number] || w.b.loads[number] != nil || w.b.rng.IntN(3) == 0 {
		return nil
	}
	p := w.load(number)
	w.b.begun++
	w.b.loads[number] = p
	return p
}

func (w boardWork) Next(shard, number int) int {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	first, last := w.PiecesOf(shard)
	w.meanwhile(max(first, number-1))
	for ; number <= last; number++ {
		if w.b.loads[number] == nil && !w.b.there[number] && w.b.rng.IntN(8) == 0 {
			return number
		}
	}
	return -1
}

func (w boardWork) Came(p *Load) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	how := "came"
	if string(p.Memory) != string(w.data.Records[p.Piece]) {
		how = "came wrong"
		w.b.wrong = append(w.b.wrong, how)
	}
	w.b.end(p, how)
	w.b.there[p.Piece] = true
}

func (w boardWork) Failed(_ int, loads []*Load, err error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	for _, l := range loads {
		w.b.end(l, err.Error())
		w.b.wrong = append(w.b.wrong, err.Error())
	}
}
