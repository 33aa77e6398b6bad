package rows

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format/npy"
)

// Pack is how lists of tokens become records of one length. The zero value means that they don't.
//
//	lists    [1 2 3]  null  []  [4 5 6]  [7 8]            --pack 3 --eos 0
//	tokens   1 2 3 0   4 5 6 0   7 8 0
//	records  1 2 3 │ 0 4 5 │ 6 0 7        8 0 are left out
//	--pack 3+1:  1 2 3 0 │ 0 4 5 6 │ 6 0 7 8              0 is left out
type Pack struct {
	Length int64 // tokens from one record to the next
	Labels bool  // a record also has the first token of the next: --pack L+1
	HasEOS bool
	EOS    int64  // the token that follows each list
	Dtype  string // "u2", "u4", "i4", "i8", or "" for that of the lists
}

// MaxPack bounds Pack.Length.
const MaxPack = 1 << 30

// ParsePack parses the value of --pack: L or L+1.
func ParsePack(text string) (Pack, error) {
	number, labels := strings.CutSuffix(text, "+1")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > MaxPack || strings.HasPrefix(number, "+") {
		return Pack{}, refused("", "--pack %s: it must be a number of tokens from 1 to %d, such as 4096, or 4096+1 for records that also have the token after them", text, int64(MaxPack))
	}
	return Pack{Length: n, Labels: labels}, nil
}

// IsTokenDtype reports whether text is a dtype of tokens, or "", which means that of the lists.
func IsTokenDtype(text string) bool {
	return slices.Contains([]string{"", "u2", "u4", "i4", "i8"}, text)
}

// String returns the text in a fingerprint: "4096+1 eos 0 dtype u2".
func (p Pack) String() string {
	b := strconv.AppendInt(nil, p.Length, 10)
	if p.Labels {
		b = append(b, "+1"...)
	}
	if p.HasEOS {
		b = strconv.AppendInt(append(b, " eos "...), p.EOS, 10)
	}
	if p.Dtype != "" {
		b = append(b, " dtype "+p.Dtype...)
	}
	return string(b)
}

// Tokens returns the number of tokens of a record.
func (p Pack) Tokens() int64 {
	if p.Labels {
		return p.Length + 1
	}
	return p.Length
}

// Records returns the number of records that a shard of some tokens has.
func (p Pack) Records(tokens int64) int64 {
	if tokens < p.Tokens() {
		return 0
	}
	return (tokens-p.Tokens())/p.Length + 1
}

// Rest returns the number of tokens at the end of a shard that are in no record.
func (p Pack) Rest(tokens int64) int64 {
	n := p.Records(tokens)
	if n == 0 {
		return tokens
	}
	return tokens - (n-1)*p.Length - p.Tokens()
}

// FirstFrom returns the first record that begins at a token or after it. The shard may end before.
func (p Pack) FirstFrom(token int64) int64 { return (token + p.Length - 1) / p.Length }

// Extent returns where a record is in the decoded shard, whose tokens have tokenBytes bytes each.
func (p Pack) Extent(record, tokenBytes int64) (offsetBytes, sizeBytes int64) {
	return record * p.Length * tokenBytes, p.Tokens() * tokenBytes
}

// Packer turns lists into the tokens of a decoded shard, and counts them. It is not safe for
// concurrent use.
type Packer struct {
	Pack
	list, elem *Type
	bits       int
	unsigned   bool
	column     string
	eos        []byte
	tokens     int64
}

// NewPacker returns a Packer of the lists of one column. Other columns, and a token for the end of
// lists that is not one of the dtype, are a *RefusedError.
func NewPacker(p Pack, columns []Column) (*Packer, error) {
	if len(columns) != 1 {
		return nil, refused("", "--pack needs one column of lists of ints, and %d are selected: name it with --columns", len(columns))
	}
	c := columns[0]
	if c.Type.Kind != List || c.Type.Fields[0].Type.Kind != Int {
		return nil, refused(c.Name, "--pack needs lists of ints, and its type is %s", c.Type)
	}
	k := &Packer{Pack: p, list: c.Type, elem: c.Type.Fields[0].Type, column: c.Name}
	k.bits, k.unsigned = k.elem.Bits, k.elem.Unsigned
	if p.Dtype != "" {
		if !IsTokenDtype(p.Dtype) {
			return nil, refused("", "--dtype %s: it must be u2, u4, i4 or i8", p.Dtype)
		}
		k.bits, k.unsigned = int(p.Dtype[1]-'0')*8, p.Dtype[0] == 'u'
	}
	if p.HasEOS {
		if !fits(p.EOS, k.bits, k.unsigned) {
			return nil, refused("", "--eos %d does not fit the tokens' dtype %s", p.EOS, dtypeOf(k.bits, k.unsigned))
		}
		k.eos = appendLittle(nil, uint64(p.EOS), k.bits/8)
	}
	return k, nil
}

// TokenBytes returns the size of a token.
func (k *Packer) TokenBytes() int64 { return int64(k.bits / 8) }

// Count returns the number of tokens that were appended.
func (k *Packer) Count() int64 { return k.tokens }

// Rows returns the format of the streams, which has their prologue.
func (k *Packer) Rows() (npy.Rows, error) {
	return npy.NewRows(fmt.Sprintf("'%s'", dtypeOf(k.bits, k.unsigned)), []int64{k.Tokens()})
}

// Append appends the tokens of row r's list, and the token for its end; nothing if the list is null
// or empty. Records never depend on where lists end, so the tokens of all rows, one after another,
// are the decoded shard. A token that does not fit the dtype is damage of the list, of which then
// nothing is appended.
func (k *Packer) Append(dst []byte, b *Batch, r int) ([]byte, error) {
	v := b.Columns[0].Vector
	i := v.at(b.Columns[0].First + r)
	if i < 0 || v.Offsets[i] == v.Offsets[i+1] {
		return dst, nil
	}
	start := len(dst)
	from, to := int(v.Offsets[i]), int(v.Offsets[i+1])
	dst, err := k.appendTokens(dst, &v.Children[0], from, to)
	if err != nil {
		return dst[:start], within(err, k.column)
	}
	dst = append(dst, k.eos...)
	k.tokens += int64((len(dst) - start) / (k.bits / 8))
	return dst, nil
}

func (k *Packer) appendTokens(dst []byte, v *Vector, from, to int) ([]byte, error) {
	width := k.bits / 8
	if v.Index == nil && v.Width == width && k.unsigned == k.elem.Unsigned {
		return append(dst, v.Bytes[from*width:to*width]...), nil
	}
	for slot := from; slot < to; slot++ {
		i := v.at(slot)
		if i < 0 {
			return dst, within(refused("", "a token is null, which --pack does not accept"), strconv.Itoa(slot-from))
		}
		var ok bool
		if dst, ok = appendAs(dst, v, i, k.elem, k.bits, k.unsigned); !ok {
			return dst, within(damaged("the token %s does not fit %s", appendInt(nil, k.elem, v, i), dtypeOf(k.bits, k.unsigned)), strconv.Itoa(slot-from))
		}
	}
	return dst, nil
}
