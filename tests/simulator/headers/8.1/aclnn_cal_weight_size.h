#ifndef OP_API_INC_ACLNN_CAL_WEIGHT_SIZE_H_
#define OP_API_INC_ACLNN_CAL_WEIGHT_SIZE_H_

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Helpers: a size by name, but no phase one, since no executor stands behind it.
 */
ACLNN_API aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *tensorShape,
                                                     uint64_t *weightTensorSize);
ACLNN_API aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *tensorShape,
                                                       aclDataType dataType,
                                                       uint64_t *weightTensorSize);
ACLNN_API aclnnStatus aclnnCalculateConvolutionWeightSize(const aclIntArray *tensorShape,
                                                          bool transposed, int64_t groups,
                                                          aclDataType dataType,
                                                          uint64_t *weightTensorSize);

#ifdef __cplusplus
}
#endif

#endif  // OP_API_INC_ACLNN_CAL_WEIGHT_SIZE_H_
