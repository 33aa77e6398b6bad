#include "textflag.h"

// func expandAVX2(dst, planes *byte, n, elementBytes int, p *pattern)
TEXT ·expandAVX2(SB), NOSPLIT, $0-40
	MOVQ    dst+0(FP), DI
	MOVQ    planes+8(FP), SI
	MOVQ    n+16(FP), DX
	MOVQ    elementBytes+24(FP), BX
	MOVQ    p+32(FP), R8
	VMOVDQU (R8), Y1                // bits
	VMOVDQU 32(R8), Y2              // one
	ADDQ    $64, R8                 // rows

plane:
	VPBROADCASTQ (SI), Y0
	MOVQ         R8, R9
	MOVQ         BX, CX

pair:
	VPSHUFB  (R9), Y0, Y3
	VPSHUFB  32(R9), Y0, Y4
	VPAND    Y1, Y3, Y3
	VPAND    Y1, Y4, Y4
	VPCMPEQB Y1, Y3, Y3
	VPCMPEQB Y1, Y4, Y4
	VPAND    Y2, Y3, Y3
	VPAND    Y2, Y4, Y4
	VMOVDQU  Y3, (DI)
	VMOVDQU  Y4, 32(DI)
	ADDQ     $64, R9
	ADDQ     $64, DI
	DECQ     CX
	JNZ      pair
	ADDQ     $8, SI
	DECQ     DX
	JNZ      plane
	VZEROUPPER
	RET
