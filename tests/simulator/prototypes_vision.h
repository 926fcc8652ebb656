// Operators of images, beside those of prototypes.h; same form.
#pragma once

#include "prototypes.h"

// aclnn_circular_pad2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnCircularPad2d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_circular_pad2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnCircularPad2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_circular_pad3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnCircularPad3d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_circular_pad3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnCircularPad3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_grid_sampler2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnGridSampler2D, const aclTensor *input, const aclTensor *grid,
             int64_t interpolationMode, int64_t paddingMode, bool alignCorners,
             SIM_OUT aclTensor *out);

// aclnn_grid_sampler2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnGridSampler2DBackward, const aclTensor *gradOutput, const aclTensor *input,
             const aclTensor *grid, int64_t interpolationMode, int64_t paddingMode,
             bool alignCorners, const aclBoolArray *outputMask, SIM_OUT aclTensor *inputGrad,
             SIM_OUT aclTensor *gridGrad);

// aclnn_grid_sampler3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnGridSampler3D, const aclTensor *input, const aclTensor *grid,
             int64_t interpolationMode, int64_t paddingMode, bool alignCorners,
             SIM_OUT aclTensor *out);

// aclnn_grid_sampler3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnGridSampler3DBackward, const aclTensor *gradOutput, const aclTensor *input,
             const aclTensor *grid, int64_t interpolationMode, int64_t paddingMode,
             bool alignCorners, const aclBoolArray *outputMask, SIM_OUT aclTensor *inputGrad,
             SIM_OUT aclTensor *gridGrad);

// aclnn_im2col.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnIm2col, const aclTensor *self, const aclIntArray *kernelSize,
             const aclIntArray *dilation, const aclIntArray *padding, const aclIntArray *stride,
             SIM_OUT const aclTensor *out);

// aclnn_im2col_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnIm2colBackward, const aclTensor *gradOutput, const aclIntArray *inputSize,
             const aclIntArray *kernelSize, const aclIntArray *dilation,
             const aclIntArray *padding, const aclIntArray *stride, SIM_OUT aclTensor *out);

// aclnn_reflection_pad1d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReflectionPad1d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_reflection_pad1d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReflectionPad1dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_reflection_pad2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReflectionPad2d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_pad2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReflectionPad2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_reflection_pad3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReflectionPad3d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_reflection_pad3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReflectionPad3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_replication_pad1d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReplicationPad1d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_replication_pad1d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReplicationPad1dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_replication_pad2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReplicationPad2d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_pad2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReplicationPad2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_replication_pad3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReplicationPad3d, const aclTensor *self, const aclIntArray *padding,
             SIM_OUT aclTensor *out);

// aclnn_replication_pad3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnReplicationPad3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *padding, SIM_OUT aclTensor *gradInput);

// aclnn_roi_align_v2.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnRoiAlignV2, const aclTensor *self, const aclTensor *boxes, int64_t pooledHeight,
             int64_t pooledWidth, float spatialScale, int64_t samplingRatio, bool aligned,
             SIM_OUT aclTensor *out);

// aclnn_roi_align_v2_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnRoiAlignV2Backward, const aclTensor *gradOutput, const aclTensor *boxes,
             const aclIntArray *inputShape, int64_t pooledHeight, int64_t pooledWidth,
             float spatialScale, int64_t samplingRatio, bool aligned, SIM_OUT aclTensor *gradInput);

// aclnn_unfold_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUnfoldGrad, const aclTensor *gradOut, const aclIntArray *inputSizes, int64_t dim,
             int64_t size, int64_t step, SIM_OUT const aclTensor *gradIn);

// aclnn_upsample_bicubic_2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBicubic2d, const aclTensor *self, const aclIntArray *outputSize,
             const bool alignCorners, const double scalesH, const double scalesW,
             SIM_OUT aclTensor *out);

// aclnn_upsample_bicubic2d_aa.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBicubic2dAA, const aclTensor *x, const aclIntArray *outputSize,
             const bool alignCorners, const double scalesH, const double scalesW,
             SIM_OUT aclTensor *out);

// aclnn_upsample_bicubic2d_aa_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBicubic2dAAGrad, const aclTensor *gradOutput,
             const aclIntArray *outputSize, const aclIntArray *inputSize, bool alignCorners,
             double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_bicubic_2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBicubic2dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, const bool alignCorners,
             double scalesH, double scalesW, SIM_OUT aclTensor *gradInput);

// aclnn_upsample_bilinear_2d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBilinear2d, const aclTensor *self, const aclIntArray *outputSize,
             const bool alignCorners, const double scalesH, const double scalesW,
             SIM_OUT aclTensor *out);

// aclnn_upsample_bilinear2d_aa.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBilinear2dAA, const aclTensor *input, const aclIntArray *outputSize,
             bool alignCorners, double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_bilinear2d_aa_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBilinear2dAABackward, const aclTensor *gradOutput,
             const aclIntArray *outputSize, const aclIntArray *inputSize, bool alignCorners,
             double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_bilinear_2d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBilinear2dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, bool alignCorners,
             double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_bilinear_2d_backward_v2.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleBilinear2dBackwardV2, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, bool alignCorners,
             double scalesH, double scalesW, SIM_OUT aclTensor *out);

// aclnn_upsample_linear_1d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleLinear1d, const aclTensor *self, const aclIntArray *outputSize,
             const bool alignCorners, const double scale, SIM_OUT aclTensor *out);

// aclnn_upsample_linear_1d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleLinear1dBackward, const aclTensor *gradOut, const aclIntArray *outputSize,
             const aclIntArray *inputSize, bool alignCorners, double scales,
             SIM_OUT aclTensor *out);

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

// aclnn_upsample_trilinear_3d.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleTrilinear3d, const aclTensor *self, const aclIntArray *outputSize,
             bool alignCorners, double scalesD, double scalesH, double scalesW,
             SIM_OUT aclTensor *out);

// aclnn_upsample_trilinear_3d_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnUpsampleTrilinear3dBackward, const aclTensor *gradOut,
             const aclIntArray *outputSize, const aclIntArray *inputSize, bool alignCorners,
             double scalesD, double scalesH, double scalesW, SIM_OUT aclTensor *gradInput);

// aclnn_avgpool3d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAvgPool3d, const aclTensor *self, const aclIntArray *kernelSize,
             const aclIntArray *stride, const aclIntArray *padding, bool ceilMode,
             bool countIncludePad, int64_t divisorOverride, SIM_OUT aclTensor *out);

// aclnn_avgpool3d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAvgPool3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *kernelSize, const aclIntArray *stride, const aclIntArray *padding,
             bool ceilMode, bool countIncludePad, int64_t divisorOverride,
             SIM_OUT aclTensor *output);

// aclnn_adaptive_avg_pool3d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveAvgPool3d, const aclTensor *self, const aclIntArray *outputSize,
             SIM_OUT aclTensor *out);

// aclnn_adaptive_avg_pool3d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveAvgPool3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *out);

// aclnn_max_pool3d_with_argmax.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxPool3dWithArgmax, const aclTensor *self, const aclIntArray *kernelSize,
             const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
             bool ceilMode, SIM_OUT aclTensor *out, SIM_OUT aclTensor *indices);

// aclnn_max_pool3d_with_argmax_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxPool3dWithArgmaxBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, const aclIntArray *kernelSize, const aclIntArray *stride,
             const aclIntArray *padding, const aclIntArray *dilation, bool ceilMode,
             SIM_OUT aclTensor *gradInput);

// aclnn_adaptive_max_pool2d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveMaxPool2d, const aclTensor *self, const aclIntArray *outputSize,
             SIM_OUT aclTensor *outputOut, SIM_OUT aclTensor *indicesOut);

// aclnn_adaptive_max_pool3d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveMaxPool3d, const aclTensor *self, const aclIntArray *outputSize,
             SIM_OUT aclTensor *outputOut, SIM_OUT aclTensor *indicesOut);

// aclnn_adaptive_max_pool2d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveMaxPool2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, SIM_OUT aclTensor *gradInput);

// aclnn_adaptive_max_pool3d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveMaxPool3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, SIM_OUT aclTensor *gradInput);

// aclnn_max_unpool2d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxUnpool2d, const aclTensor *self, const aclTensor *indices,
             const aclIntArray *outputSize, SIM_OUT aclTensor *out);

// aclnn_max_unpool3d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxUnpool3d, const aclTensor *self, const aclTensor *indices,
             const aclIntArray *outputSize, const aclIntArray *stride, const aclIntArray *padding,
             SIM_OUT aclTensor *outRef);

// aclnn_max_unpool2d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxUnpool2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, const aclIntArray *outputSize, SIM_OUT aclTensor *out);

// aclnn_max_unpool3d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxUnpool3dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, const aclIntArray *outputSize, const aclIntArray *stride,
             const aclIntArray *padding, SIM_OUT aclTensor *out);

// aclnn_batch_norm_reduce.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNormReduce, const aclTensor *x, SIM_OUT aclTensor *sum,
             SIM_OUT aclTensor *squareSum);

// aclnn_batch_norm_gather_stats_with_counts.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNormGatherStatsWithCounts, const aclTensor *input, const aclTensor *mean,
             const aclTensor *invstd, SIM_OPTIONAL SIM_OUT aclTensor *runningMean,
             SIM_OPTIONAL SIM_OUT aclTensor *runningVar, double momentum, double eps,
             const aclTensor *counts, SIM_OUT aclTensor *meanAll, SIM_OUT aclTensor *invstdAll);

// aclnn_batch_norm_elemt.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNormElemt, const aclTensor *input, SIM_OPTIONAL const aclTensor *weight,
             SIM_OPTIONAL const aclTensor *bias, aclTensor *mean, aclTensor *invstd, double eps,
             SIM_OUT aclTensor *output);

// aclnn_batch_norm_backward_reduce.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNormReduceBackward, const aclTensor *gradOut, const aclTensor *input,
             const aclTensor *mean, const aclTensor *invstd, SIM_OPTIONAL const aclTensor *weight,
             const bool inputG, const bool weightG, const bool biasG,
             SIM_OPTIONAL SIM_OUT aclTensor *sumDy, SIM_OPTIONAL SIM_OUT aclTensor *sumDyXmu,
             SIM_OPTIONAL SIM_OUT aclTensor *gradWeight,
             SIM_OPTIONAL SIM_OUT aclTensor *gradBias);

// aclnn_batch_norm_elemt_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNormElemtBackward, const aclTensor *gradOut, const aclTensor *input,
             const aclTensor *mean, const aclTensor *invstd, SIM_OPTIONAL const aclTensor *weight,
             const aclTensor *sumDy, const aclTensor *sumDyXmu, aclTensor *counter,
             SIM_OUT aclTensor *gradInput);

// aclnn_group_norm_swish.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnGroupNormSwish, const aclTensor *x, const aclTensor *gamma, const aclTensor *beta,
             int64_t numGroups, SIM_OPTIONAL char *dataFormatOptional, double eps,
             bool activateSwish, double swishScale, SIM_OUT const aclTensor *yOut,
             SIM_OUT const aclTensor *meanOut, SIM_OUT const aclTensor *rstdOut);
