// Operators of images, beside those of prototypes.h; same form.
#pragma once

#include "prototypes.h"

// aclnn_upsample_nearest_1d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearest1d, const aclTensor *self, const aclIntArray *outputSize,
             SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_1d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearest1dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, double scales,
             SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearest2d, const aclTensor *self, const aclIntArray *outputSize,
             SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearest2dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, double scalesH,
             double scalesW, SIM_OUT aclTensor *gradInput);

// aclnn_upsample_nearest_3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearest3d, const aclTensor *self, const aclIntArray *outputSize,
             double scalesD, double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearest3dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, double scalesD,
             double scalesH, double scalesW, SIM_OUT aclTensor *gradInput);

// aclnn_upsample_nearest_exact1d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearestExact1d, const aclTensor *self, const aclIntArray *outputSize,
             double scales, SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_exact1d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearestExact1dBackward, const aclTensor *gradOutput,
             const aclIntArray *outputSize, const aclIntArray *inputSize, double scales,
             SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_exact2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearestExact2d, const aclTensor *self, const aclIntArray *outputSize,
             double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_exact2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearestExact2dBackward, const aclTensor *gradOutput,
             const aclIntArray *outputSize, const aclIntArray *inputSize, double scalesH,
             double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_exact3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearestExact3d, const aclTensor *self, const aclIntArray *outputSize,
             double scalesD, double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_nearest_exact3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleNearestExact3dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, double scalesD,
             double scalesH, double scalesW, SIM_OUT aclTensor *gradInput);
