/* 汇总头文件: includes others, declares nothing */
#ifndef OP_API_INC_ACLNN_MATH_H_
#define OP_API_INC_ACLNN_MATH_H_

#include "aclnn_add.h"
#include "aclnn_kl_div_backward.h"

#endif  // OP_API_INC_ACLNN_MATH_H_
