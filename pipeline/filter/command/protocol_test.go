package command

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func reply(status byte, n uint64, body string) []byte {
	return append(binary.LittleEndian.AppendUint64([]byte{status}, n), body...)
}

func TestRequestFollowsProtocol(t *testing.T) {
	require.Equal(t, "\x03\x00\x00\x00a/b\x05\x00\x00\x00\x00\x00\x00\x00", string(appendRequest(nil, "a/b", 5)))
}

func TestReplies(t *testing.T) {
	for name, tt := range map[string]struct {
		text []byte
		want Reply
		err  string
	}{
		"bytes":                    {text: reply(0, 3, "abcmore"), want: Reply{ReplyBytes, []byte("abc")}},
		"no bytes":                 {text: reply(0, 0, ""), want: Reply{Status: ReplyBytes}},
		"drop":                     {text: reply(1, 0, ""), want: Reply{Status: ReplyDrop}},
		"failed":                   {text: reply(2, 4, "away"), want: Reply{ReplyFailed, []byte("away")}},
		"nothing":                  {err: "EOF"},
		"half a head":              {text: []byte("\x00\x01"), err: "unexpected EOF"},
		"fewer bytes than it said": {text: reply(0, 4, "abc"), err: "unexpected EOF"},
		"no status":                {text: reply(3, 0, ""), err: "its status is not 0, 1 or 2"},
		"text":                     {text: []byte("hello, world\n"), err: "does not speak the protocol"},
		"a drop with bytes":        {text: reply(1, 1, "x"), err: "drops a unit has 1 bytes"},
		"a long reason":            {text: reply(2, maxReasonBytes+1, ""), err: "a reason of 65537 bytes"},
		"too long":                 {text: reply(0, 101, ""), err: "a reply of 101 bytes, of at most 100 (--unit-bytes)"},
		"much too long":            {text: reply(0, 1<<63, ""), err: "a reply of 9223372036854775808 bytes"},
	} {
		for _, r := range []io.Reader{bytes.NewReader(tt.text), iotest.OneByteReader(bytes.NewReader(tt.text))} {
			got, err := readReply(r, 100)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err, name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, tt.want.Status, got.Status, name)
			require.Equal(t, string(tt.want.Body), string(got.Body), name)
		}
	}
}

func TestHellos(t *testing.T) {
	require.NoError(t, readHello(strings.NewReader(Hello+"rest")))
	require.Equal(t, io.EOF, readHello(strings.NewReader("")))
	require.Equal(t, io.ErrUnexpectedEOF, readHello(strings.NewReader(Hello[:3])))
	for _, other := range []string{"LSIOFSF2", "usage: rescore", "x", "\n"} {
		require.ErrorIs(t, readHello(strings.NewReader(other)), errGarbage, other)
	}
}

// A reply that announces a large size takes no memory before it arrives.
func TestLargeAnnouncedReplyAllocatesLittle(t *testing.T) {
	text := reply(0, 1<<40, "abc")
	_, err := readReply(bytes.NewReader(text), 1<<50)
	require.Equal(t, io.ErrUnexpectedEOF, err)
}

func FuzzReadReply(f *testing.F) {
	f.Add(reply(0, 3, "abc"), int64(100))
	f.Add(reply(1, 0, ""), int64(0))
	f.Add(reply(2, 4, "away"), int64(3))
	f.Fuzz(func(t *testing.T, text []byte, most int64) {
		most = max(0, most)
		r := bytes.NewReader(text)
		got, err := readReply(r, most)
		if err != nil {
			return
		}
		// An accepted reply has only one encoding, and is within its bounds.
		again := reply(byte(got.Status), uint64(len(got.Body)), string(got.Body))
		require.Equal(t, text[:len(text)-r.Len()], again)
		if got.Status == ReplyBytes {
			require.LessOrEqual(t, int64(len(got.Body)), most)
		}
	})
}
