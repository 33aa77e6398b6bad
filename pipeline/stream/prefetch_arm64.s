#include "textflag.h"

// func prefetch(b []byte, step int)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVD b_base+0(FP), R0
	MOVD b_len+8(FP), R1
	MOVD step+24(FP), R2
	ADD  R0, R1, R1
	B    more

loop:
	PRFM (R0), PLDL1KEEP
	ADD  R2, R0, R0

more:
	CMP R1, R0
	BLO loop
	RET

// func prefetchFar(b []byte, step int)
TEXT ·prefetchFar(SB), NOSPLIT, $0-32
	MOVD b_base+0(FP), R0
	MOVD b_len+8(FP), R1
	MOVD step+24(FP), R2
	ADD  R0, R1, R1
	B    more

loop:
	PRFM (R0), PLDL2KEEP
	ADD  R2, R0, R0

more:
	CMP R1, R0
	BLO loop
	RET
