#include "textflag.h"

// X10 to X14 are the lanes: scale, offset, the bits of a missing element, whether there is one, NaN.
#define LOAD \
	MOVQ  dst_base+0(FP), DI \
	MOVQ  src_base+24(FP), SI \
	MOVQ  n+48(FP), CX \
	MOVQ  k+56(FP), AX \
	MOVOU (AX), X10 \
	MOVOU 16(AX), X11 \
	MOVOU 32(AX), X12 \
	MOVOU 48(AX), X13 \
	MOVOU 64(AX), X14

// m = NaN where m is all ones, else x·scale + offset; x and t are clobbered.
#define FINISH(x, m, t) \
	MULPS  X10, x \
	ADDPS  X11, x \
	MOVO   X14, t \
	ANDPS  m, t \
	ANDNPS x, m \
	ORPS   t, m

// The two halves of 8 words, each duplicated into 4 double words, and masks of the missing ones.
#define WORDS \
	MOVOU     (SI), X0 \
	MOVO      X0, X6 \
	PCMPEQW   X12, X6 \
	PAND      X13, X6 \
	MOVO      X6, X7 \
	PUNPCKLWL X6, X6 \
	PUNPCKHWL X7, X7 \
	MOVO      X0, X1 \
	PUNPCKLWL X0, X0 \
	PUNPCKHWL X1, X1

// Ends a pass over 8 elements, which took src bytes.
#define FINISHBOTH(src) \
	FINISH(X0, X6, X2) \
	FINISH(X1, X7, X3) \
	MOVOU X6, (DI) \
	MOVOU X7, 16(DI) \
	ADDQ  $src, SI \
	ADDQ  $32, DI \
	SUBQ  $8, CX

#define STORE(src) \
	CVTPL2PS X0, X0 \
	CVTPL2PS X1, X1 \
	FINISHBOTH(src)

// 8 bytes, each repeated 4 times in 8 double words, and masks of the missing ones.
#define BYTES \
	MOVQ      (SI), X0 \
	MOVO      X0, X6 \
	PCMPEQB   X12, X6 \
	PAND      X13, X6 \
	PUNPCKLBW X6, X6 \
	MOVO      X6, X7 \
	PUNPCKLWL X6, X6 \
	PUNPCKHWL X7, X7 \
	PUNPCKLBW X0, X0 \
	MOVO      X0, X1 \
	PUNPCKLWL X0, X0 \
	PUNPCKHWL X1, X1

// func convertInt8(dst, src []byte, n int, k *lanes)
TEXT ·convertInt8(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	BYTES
	PSRAL $24, X0
	PSRAL $24, X1
	STORE(8)
	JNZ   loop

done:
	RET

// func convertUint8(dst, src []byte, n int, k *lanes)
TEXT ·convertUint8(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	BYTES
	PSRLL $24, X0
	PSRLL $24, X1
	STORE(8)
	JNZ   loop

done:
	RET

// func convertInt16(dst, src []byte, n int, k *lanes)
TEXT ·convertInt16(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	WORDS
	PSRAL $16, X0
	PSRAL $16, X1
	STORE(16)
	JNZ   loop

done:
	RET

// func convertUint16(dst, src []byte, n int, k *lanes)
TEXT ·convertUint16(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	WORDS
	PSRLL $16, X0
	PSRLL $16, X1
	STORE(16)
	JNZ   loop

done:
	RET

// func convertInt32(dst, src []byte, n int, k *lanes)
TEXT ·convertInt32(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	MOVOU    (SI), X0
	MOVOU    16(SI), X1
	MOVO     X0, X6
	MOVO     X1, X7
	PCMPEQL  X12, X6
	PCMPEQL  X12, X7
	PAND     X13, X6
	PAND     X13, X7
	STORE(32)
	JNZ      loop

done:
	RET

// func convertFloat32(dst, src []byte, n int, k *lanes)
TEXT ·convertFloat32(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	MOVOU   (SI), X0
	MOVOU   16(SI), X1
	MOVO    X0, X6
	MOVO    X1, X7
	PCMPEQL X12, X6
	PCMPEQL X12, X7
	PAND    X13, X6
	PAND    X13, X7
	MOVO    X0, X2
	MOVO    X1, X3
	CMPPS   X2, X2, $3            // elements that are NaN count as missing
	CMPPS   X3, X3, $3
	ORPS    X2, X6
	ORPS    X3, X7
	FINISHBOTH(32)
	JNZ     loop

done:
	RET

// 4 elements of 8 bytes as float32 in x, and a mask of the missing ones in m; t and u are clobbered.
// The halves of an element are compared, and the results combined.
#define DOUBLES(at, x, m, t, u) \
	MOVOU    at(SI), x \
	MOVOU    at+16(SI), t \
	MOVO     x, m \
	MOVO     t, u \
	PCMPEQL  X12, m \
	PCMPEQL  X12, u \
	CVTPD2PS x, x \
	CVTPD2PS t, t \
	MOVLHPS  t, x \
	MOVO     m, t \
	SHUFPS   $0x88, u, m \
	SHUFPS   $0xdd, u, t \
	PAND     t, m \
	PAND     X13, m

// func convertFloat64(dst, src []byte, n int, k *lanes)
TEXT ·convertFloat64(SB), NOSPLIT, $0-64
	LOAD
	ANDQ $-8, CX
	JZ   done

loop:
	DOUBLES(0, X0, X6, X2, X3)
	DOUBLES(32, X1, X7, X2, X3)
	MOVO  X0, X2
	MOVO  X1, X3
	CMPPS X2, X2, $3
	CMPPS X3, X3, $3
	ORPS  X2, X6
	ORPS  X3, X7
	FINISHBOTH(64)
	JNZ   loop

done:
	RET
