#include "textflag.h"

// func prefetch(b []byte, step int)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ b_base+0(FP), AX
	MOVQ b_len+8(FP), CX
	MOVQ step+24(FP), DX
	ADDQ AX, CX
	JMP  more

loop:
	PREFETCHT0 (AX)
	ADDQ       DX, AX

more:
	CMPQ AX, CX
	JB   loop
	RET

// func prefetchFar(b []byte, step int)
TEXT ·prefetchFar(SB), NOSPLIT, $0-32
	MOVQ b_base+0(FP), AX
	MOVQ b_len+8(FP), CX
	MOVQ step+24(FP), DX
	ADDQ AX, CX
	JMP  more

loop:
	PREFETCHT1 (AX)
	ADDQ       DX, AX

more:
	CMPQ AX, CX
	JB   loop
	RET
