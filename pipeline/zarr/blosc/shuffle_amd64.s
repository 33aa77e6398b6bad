#include "textflag.h"

// Streams of bytes are interleaved in pairs, then the pairs, then the fours. All amd64 processors
// have these instructions (SSE2).

// func unshuffle2(dst, src []byte, n int)
TEXT ·unshuffle2(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ n+48(FP), DX
	MOVQ DX, CX
	ANDQ $-16, CX
	JZ   done

loop:
	MOVOU     (SI), X0
	MOVOU     (SI)(DX*1), X1
	MOVO      X0, X2
	PUNPCKLBW X1, X0
	PUNPCKHBW X1, X2
	MOVOU     X0, (DI)
	MOVOU     X2, 16(DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNZ       loop

done:
	RET

// func unshuffle4(dst, src []byte, n int)
TEXT ·unshuffle4(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ n+48(FP), DX
	MOVQ DX, CX
	ANDQ $-16, CX
	JZ   done
	LEAQ (SI)(DX*2), R8

loop:
	MOVOU     (SI), X0
	MOVOU     (SI)(DX*1), X1
	MOVOU     (R8), X2
	MOVOU     (R8)(DX*1), X3
	MOVO      X0, X4
	PUNPCKLBW X1, X0
	PUNPCKHBW X1, X4
	MOVO      X2, X5
	PUNPCKLBW X3, X2
	PUNPCKHBW X3, X5
	MOVO      X0, X6
	PUNPCKLWL X2, X0
	PUNPCKHWL X2, X6
	MOVO      X4, X7
	PUNPCKLWL X5, X4
	PUNPCKHWL X5, X7
	MOVOU     X0, (DI)
	MOVOU     X6, 16(DI)
	MOVOU     X4, 32(DI)
	MOVOU     X7, 48(DI)
	ADDQ      $16, SI
	ADDQ      $16, R8
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       loop

done:
	RET

// func unshuffle8(dst, src []byte, n int)
TEXT ·unshuffle8(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ n+48(FP), DX
	MOVQ DX, CX
	ANDQ $-16, CX
	JZ   done
	LEAQ (SI)(DX*2), R8
	LEAQ (R8)(DX*2), R9
	LEAQ (R9)(DX*2), R10

loop:
	MOVOU     (SI), X0
	MOVOU     (SI)(DX*1), X1
	MOVOU     (R8), X2
	MOVOU     (R8)(DX*1), X3
	MOVOU     (R9), X4
	MOVOU     (R9)(DX*1), X5
	MOVOU     (R10), X6
	MOVOU     (R10)(DX*1), X7
	MOVO      X0, X8
	PUNPCKLBW X1, X0
	PUNPCKHBW X1, X8
	MOVO      X2, X9
	PUNPCKLBW X3, X2
	PUNPCKHBW X3, X9
	MOVO      X4, X10
	PUNPCKLBW X5, X4
	PUNPCKHBW X5, X10
	MOVO      X6, X11
	PUNPCKLBW X7, X6
	PUNPCKHBW X7, X11

	// The first 8 elements.
	MOVO      X0, X1
	PUNPCKLWL X2, X0
	PUNPCKHWL X2, X1
	MOVO      X4, X3
	PUNPCKLWL X6, X4
	PUNPCKHWL X6, X3
	MOVO      X0, X5
	PUNPCKLLQ X4, X0
	PUNPCKHLQ X4, X5
	MOVO      X1, X7
	PUNPCKLLQ X3, X1
	PUNPCKHLQ X3, X7
	MOVOU     X0, (DI)
	MOVOU     X5, 16(DI)
	MOVOU     X1, 32(DI)
	MOVOU     X7, 48(DI)

	// The other 8.
	MOVO      X8, X12
	PUNPCKLWL X9, X8
	PUNPCKHWL X9, X12
	MOVO      X10, X13
	PUNPCKLWL X11, X10
	PUNPCKHWL X11, X13
	MOVO      X8, X14
	PUNPCKLLQ X10, X8
	PUNPCKHLQ X10, X14
	MOVO      X12, X0
	PUNPCKLLQ X13, X12
	PUNPCKHLQ X13, X0
	MOVOU     X8, 64(DI)
	MOVOU     X14, 80(DI)
	MOVOU     X12, 96(DI)
	MOVOU     X0, 112(DI)

	ADDQ $16, SI
	ADDQ $16, R8
	ADDQ $16, R9
	ADDQ $16, R10
	ADDQ $128, DI
	SUBQ $16, CX
	JNZ  loop

done:
	RET
