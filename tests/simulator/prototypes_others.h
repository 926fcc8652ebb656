// Operators of no larger family, beside those of prototypes.h; same form.
#pragma once

#include "prototypes.h"

// aclnn_modulate.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnModulate, const aclTensor *self, const aclTensor *scaleOptional,
             const aclTensor *shiftOptional, SIM_OUT aclTensor *out);

// aclnn_modulate_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnModulateBackward, const aclTensor *grad_output, const aclTensor *input,
             const aclTensor *scale, const aclTensor *shift, SIM_OUT const aclTensor *grad_input,
             SIM_OPTIONAL SIM_OUT const aclTensor *grad_scale,
             SIM_OPTIONAL SIM_OUT const aclTensor *grad_shift);

// aclnn_grouped_bias_add_grad.h; math; 8.1 9.x
SIM_OPERATOR(aclnnGroupedBiasAddGrad, const aclTensor *gradY,
             SIM_OPTIONAL const aclTensor *groupIdxOptional, SIM_OUT aclTensor *out);

// aclnn_grouped_bias_add_grad.h; math; 8.1 9.x
SIM_OPERATOR(aclnnGroupedBiasAddGradV2, const aclTensor *gradY,
             SIM_OPTIONAL const aclTensor *groupIdxOptional, int64_t groupIdxType,
             SIM_OUT aclTensor *out);

// aclnn_ada_layer_norm.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaLayerNorm, const aclTensor *x, const aclTensor *scale, const aclTensor *shift,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *biasOptional, double epsilon, SIM_OUT aclTensor *out);

// aclnn_ada_layer_norm_v2.h; nn; 9.x
SIM_OPERATOR(aclnnAdaLayerNormV2, const aclTensor *x, const aclTensor *scale,
             const aclTensor *shift, SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *biasOptional, double epsilon, SIM_OUT aclTensor *out,
             SIM_OPTIONAL SIM_OUT aclTensor *meanOutOptional,
             SIM_OPTIONAL SIM_OUT aclTensor *rstdOutOptional);

// aclnn_ada_layer_norm_backward.h; nn; 9.x
SIM_OPERATOR(aclnnAdaLayerNormBackward, const aclTensor *gradOut, const aclTensor *input,
             const aclIntArray *normalizedShape, const aclTensor *rstd, const aclTensor *mean,
             const aclTensor *scale, const aclTensor *shift,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *biasOptional,
             SIM_OPTIONAL SIM_OUT aclTensor *gradInputOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradScaleOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradShiftOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradWeightOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradBiasOut);

// aclnn_situ_glu.h; nn; 9.x; generated
SIM_OPERATOR(aclnnSituGlu, const aclTensor *x, int64_t dim, double beta, double linearBeta,
             bool activateLeft, SIM_OUT const aclTensor *out);

// aclnn_situ_glu_grad.h; nn; 9.x; generated
SIM_OPERATOR(aclnnSituGluGrad, const aclTensor *gradY, const aclTensor *x, int64_t dim, double beta,
             double linearBeta, bool activateLeft, SIM_OUT const aclTensor *out);

// aclnn_cdist.h; math; 9.x
SIM_OPERATOR(aclnnCdist, const aclTensor *x1, const aclTensor *x2, float p, int64_t compute_mode,
             SIM_OUT aclTensor *out);

// aclnn_cdist_backward.h; math; 9.x
SIM_OPERATOR(aclnnCdistBackward, const aclTensor *grad, const aclTensor *x1, const aclTensor *x2,
             const aclTensor *cdist, float p, SIM_OUT aclTensor *out);

// aclnn_floor_divide.h; math; 8.1 9.x
SIM_OPERATOR(aclnnFloorDivide, const aclTensor *self, const aclTensor *other,
             SIM_OUT aclTensor *out);

// aclnn_floor_divide.h; math; 8.1 9.x
SIM_OPERATOR(aclnnFloorDivides, const aclTensor *self, const aclScalar *other,
             SIM_OUT aclTensor *out);

// ---- In place, beside other tensors and numbers ----

// aclnn_add.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceAdd, SIM_OUT const aclTensor *selfRef, const aclTensor *other,
             const aclScalar *alpha);

// aclnn_sub.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceSub, SIM_OUT aclTensor *selfRef, const aclTensor *other,
             const aclScalar *alpha);

// aclnn_mul.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceMul, SIM_OUT aclTensor *selfRef, const aclTensor *other);

// aclnn_mul.h; math; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnInplaceMuls, SIM_OUT aclTensor *selfRef, const aclScalar *other);

// aclnn_div.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceDiv, SIM_OUT aclTensor *selfRef, const aclTensor *other);

// aclnn_floor_divide.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceFloorDivide, SIM_OUT aclTensor *selfRef, const aclTensor *other);

// aclnn_floor_divide.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceFloorDivides, SIM_OUT aclTensor *selfRef, const aclScalar *other);

// aclnn_index_fill.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceIndexFill, SIM_OUT aclTensor *selfRef, int64_t dim,
             const aclTensor *index, const aclScalar *value);

// aclnn_index_fill_tensor.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceIndexFillTensor, SIM_OUT aclTensor *selfRef, int64_t dim,
             const aclIntArray *index, const aclScalar *value);
