#include "textflag.h"

// Stores of 2 or 4 registers interleave them.

// func unshuffle2(dst, src []byte, n int)
TEXT ·unshuffle2(SB), NOSPLIT, $0-56
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R1
	MOVD n+48(FP), R2
	ADD  R2, R1, R3
	AND  $~15, R2, R4
	CBZ  R4, done

loop:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R3), [V1.B16]
	VST2.P [V0.B16, V1.B16], 32(R0)
	SUBS   $16, R4
	BNE    loop

done:
	RET

// func unshuffle4(dst, src []byte, n int)
TEXT ·unshuffle4(SB), NOSPLIT, $0-56
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R1
	MOVD n+48(FP), R2
	ADD  R2, R1, R3
	ADD  R2, R3, R5
	ADD  R2, R5, R6
	AND  $~15, R2, R4
	CBZ  R4, done

loop:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R3), [V1.B16]
	VLD1.P 16(R5), [V2.B16]
	VLD1.P 16(R6), [V3.B16]
	VST4.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUBS   $16, R4
	BNE    loop

done:
	RET

// func unshuffle8(dst, src []byte, n int)
TEXT ·unshuffle8(SB), NOSPLIT, $0-56
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R1
	MOVD n+48(FP), R2
	ADD  R2, R1, R3
	ADD  R2, R3, R5
	ADD  R2, R5, R6
	ADD  R2, R6, R7
	ADD  R2, R7, R8
	ADD  R2, R8, R9
	ADD  R2, R9, R10
	AND  $~15, R2, R4
	CBZ  R4, done

loop:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R3), [V1.B16]
	VLD1.P 16(R5), [V2.B16]
	VLD1.P 16(R6), [V3.B16]
	VLD1.P 16(R7), [V4.B16]
	VLD1.P 16(R8), [V5.B16]
	VLD1.P 16(R9), [V6.B16]
	VLD1.P 16(R10), [V7.B16]
	VZIP1  V1.B16, V0.B16, V16.B16
	VZIP1  V3.B16, V2.B16, V17.B16
	VZIP1  V5.B16, V4.B16, V18.B16
	VZIP1  V7.B16, V6.B16, V19.B16
	VZIP2  V1.B16, V0.B16, V20.B16
	VZIP2  V3.B16, V2.B16, V21.B16
	VZIP2  V5.B16, V4.B16, V22.B16
	VZIP2  V7.B16, V6.B16, V23.B16
	VST4.P [V16.H8, V17.H8, V18.H8, V19.H8], 64(R0)
	VST4.P [V20.H8, V21.H8, V22.H8, V23.H8], 64(R0)
	SUBS   $16, R4
	BNE    loop

done:
	RET
