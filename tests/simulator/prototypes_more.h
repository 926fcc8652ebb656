// Operators beside those of prototypes.h, for what is special about them; same form.
#pragma once

#include "prototypes.h"

// ---- The custom package ----

// aclnn_kl_div_target_backward.h; cust; custom; generated
SIM_OPERATOR(aclnnKlDivTargetBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, int64_t reduction, bool logTarget,
             SIM_OUT aclTensor *gradTarget);

// aclnn_vendor_scale.h; cust; custom; generated
SIM_OPERATOR(aclnnVendorScale, const aclTensor *self, double factor, SIM_OUT aclTensor *out);

// ---- Element-wise, sums and products that npucall does not declare ----

// aclnn_vendor_sums.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnVendorSums, const aclTensor *self, const aclBoolArray *which,
             SIM_OPTIONAL SIM_OUT aclTensor *rowsOut, SIM_OPTIONAL SIM_OUT aclTensor *columnsOut);
// aclnn_rsub.h; math; 8.1 9.x
SIM_OPERATOR(aclnnRsub, const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
             SIM_OUT aclTensor *out);

// aclnn_maximum.h; math; 8.1 9.x
SIM_OPERATOR(aclnnMaximum, const aclTensor *self, const aclTensor *other, SIM_OUT aclTensor *out);

// aclnn_exp2.h; math; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnExp2, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_relu.h; nn; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnRelu, const aclTensor *self, SIM_OUT const aclTensor *out);

// aclnn_reduce_nansum.h; math; 8.1 9.x
SIM_OPERATOR(aclnnReduceNansum, const aclTensor *self, const aclIntArray *dim, bool keepDim,
             aclDataType dtype, SIM_OUT aclTensor *out);

// aclnn_cumsum.h; math; 8.1 9.x
SIM_OPERATOR(aclnnCumsum, const aclTensor *self, int64_t dim, aclDataType dtype,
             SIM_OUT aclTensor *out);

// aclnn_mm.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMm, const aclTensor *self, const aclTensor *mat2, SIM_OUT aclTensor *out,
             int8_t cubeMathType);

// aclnn_copy.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceCopy, SIM_OUT aclTensor *selfRef, const aclTensor *src);

// ---- Lists and arrays ----

// aclnn_foreach_add_scalar_list.h; math; 8.1 9.x; generated
SIM_OPERATOR(aclnnForeachAddScalarList, const aclTensorList *x, const aclScalarList *scalars,
             SIM_OUT const aclTensorList *out);

// aclnn_resize.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnResize, const aclTensor *self, const aclFloatArray *scales, const char *mode,
             SIM_OUT aclTensor *out);

// aclnn_split_with_size.h; math; 8.1 9.x
SIM_OPERATOR(aclnnSplitWithSize, const aclTensor *self, const aclIntArray *splitSize, int64_t dim,
             SIM_OUT aclTensorList *out);

// ---- Names: in place, a V number, not aclnn ----

// aclnn_vendor_relu.h; nn; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnInplaceVendorRelu, SIM_OUT aclTensor *selfRef);

// aclnn_normal.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceNormal, SIM_OUT const aclTensor *selfRef, float mean, float std,
             int64_t seed, int64_t offset);

// aclnn_ascend_quant.h; opapi; 8.1 9.x; deprecated
SIM_OPERATOR(aclnnAscendQuant, const aclTensor *x, const aclTensor *scale,
             SIM_OPTIONAL const aclTensor *offset, bool sqrtMode, const char *roundMode,
             int32_t dstType, SIM_OUT const aclTensor *y);

// aclnn_ascend_quant_v3.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnAscendQuantV3, const aclTensor *x, const aclTensor *scale,
             SIM_OPTIONAL const aclTensor *offset, bool sqrtMode, const char *roundMode,
             int32_t dstType, int32_t axis, SIM_OUT const aclTensor *y);

// acl_rfft1d.h; math; 8.1 9.x
SIM_OPERATOR(aclRfft1D, const aclTensor *self, int64_t n, int64_t dim, int64_t norm,
             SIM_OUT aclTensor *out);

// ---- What a generic caller must leave alone: communication, shapes that depend on data ----

// aclnn_all_gather_matmul.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnAllGatherMatmul, const aclTensor *x1, const aclTensor *x2,
             SIM_OPTIONAL const aclTensor *bias, const char *group, int64_t gatherIndex,
             int64_t commTurn, int64_t streamMode, SIM_OUT const aclTensor *output,
             SIM_OUT const aclTensor *gatherOut);

// aclnn_nonzero.h; math; 8.1 9.x
SIM_OPERATOR(aclnnNonzero, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_non_max_suppression.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnNonMaxSuppression, const aclTensor *boxes, const aclTensor *scores,
             aclIntArray *maxOutputBoxesPerClass, aclFloatArray *iouThreshold,
             aclFloatArray *scoreThreshold, int64_t centerPointBox,
             SIM_OUT aclTensor *selectedIndices);

// ---- Headers of level2/ alone ----

// aclnn_iou.h; opapi; 8.1; level2
SIM_OPERATOR(aclnnIou, const aclTensor *bBoxes, const aclTensor *gtBoxes, const char *mode,
             float eps, bool aligned, SIM_OUT aclTensor *overlap);

// aclnn_rope_with_sin_cos_cache.h; opapi; 8.1; level2
SIM_OPERATOR(aclnnRopeWithSinCosCache, const aclTensor *positions, const aclTensor *queryIn,
             const aclTensor *keyIn, const aclTensor *cosSinCache,
             SIM_OPTIONAL const aclIntArray *mropeSection, int64_t headSize, bool isNeoxStyle,
             SIM_OUT aclTensor *queryOut, SIM_OUT aclTensor *keyOut);

// aclnn_scaled_masked_softmax.h; opapi; 8.1 9.x; level2
SIM_OPERATOR(aclnnScaledMaskedSoftmax, const aclTensor *x, const aclTensor *mask, double scale,
             bool fixTriuMask, SIM_OUT aclTensor *y);

// ---- What the device itself uses ----

// aclnn_zero.h; math; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnInplaceZero, SIM_OUT aclTensor *selfRef);
