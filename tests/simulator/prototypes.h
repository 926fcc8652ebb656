// The operators that the simulator offers, typed from CANN's documents.
//
// The comment above an operator says where it is: header; library; releases; words of its own.
// Libraries: "math" and "nn" (split off libopapi.so in 9.x), "opapi", "cust" (the custom package),
// "none" (a header, but no library). Words: "generated" is of the single-kernel family of
// executors, "no-workspace" needs none, "any-rank" does not refuse nine dimensions, "level2" has
// its header there only, in 8.1.
//
// g++ reads this file, and generate.py does by two patterns: that comment, and SIM_OPERATOR(...);
#pragma once

#include "acl_types.h"

#define SIM_OPTIONAL  // may be NULL
#define SIM_OUT       // is written, perhaps read too
#define SIM_OPERATOR(name, ...)                                                               \
    SIM_API aclnnStatus name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspaceSize,          \
                                               aclOpExecutor **executor);                     \
    SIM_API aclnnStatus name(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, \
                             aclrtStream stream)

// ---- Losses, backward ----

// aclnn_kl_div_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnKlDivBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, int64_t reduction, bool logTarget, SIM_OUT aclTensor *out);

// aclnn_kl_div_target_backward.h; nn; 9.x
SIM_OPERATOR(aclnnKlDivTargetBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, int64_t reduction, bool logTarget,
             SIM_OUT aclTensor *gradTarget);

// aclnn_l1_loss_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnL1LossBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, int64_t reduction, SIM_OUT aclTensor *gradInput);

// aclnn_smooth_l1_loss_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSmoothL1LossBackward, const aclTensor *gradOut, const aclTensor *self,
             const aclTensor *target, int64_t reduction, float beta, SIM_OUT aclTensor *gradInput);

// aclnn_mse_loss_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMseLossBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, int64_t reduction, SIM_OUT aclTensor *out);

// aclnn_binary_cross_entropy_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBinaryCrossEntropyBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, SIM_OPTIONAL const aclTensor *weightOptional,
             int64_t reduction, SIM_OUT aclTensor *out);

// aclnn_binary_cross_entropy_with_logits_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBinaryCrossEntropyWithLogitsBackward, const aclTensor *gradOutput,
             const aclTensor *self, const aclTensor *target,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *posWeightOptional, int64_t reduction,
             SIM_OUT aclTensor *out);

// aclnn_binary_cross_entropy_with_logits_target_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBinaryCrossEntropyWithLogitsTargetBackward, const aclTensor *gradOutput,
             const aclTensor *self, const aclTensor *target,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *posWeightOptional, int64_t reduction,
             SIM_OUT aclTensor *gradTarget);

// aclnn_soft_margin_loss_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftMarginLossBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, int64_t reduction, SIM_OUT aclTensor *out);

// aclnn_nll_loss_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnNLLLossBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, const aclTensor *weight, int64_t reduction,
             int64_t ignoreIndex, const aclTensor *totalWeight, SIM_OUT aclTensor *out);

// aclnn_nll_loss2d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnNLLLoss2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *target, const aclTensor *weight, int64_t reduction,
             int64_t ignoreIndex, aclTensor *totalWeight, SIM_OUT aclTensor *out);

// aclnn_ctc_loss_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnCtcLossBackward, const aclTensor *gradOut, const aclTensor *logProbs,
             const aclTensor *targets, const aclIntArray *inputLengths,
             const aclIntArray *targetLengths, const aclTensor *negLogLikelihood,
             const aclTensor *logAlpha, int64_t blank, bool zeroInfinity, SIM_OUT aclTensor *out);

// aclnn_cross_entropy_loss_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnCrossEntropyLossGrad, const aclTensor *gradLoss, const aclTensor *logProb,
             const aclTensor *target, SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *gradZlossOptional,
             SIM_OPTIONAL const aclTensor *lseForZlossOptional,
             SIM_OPTIONAL char *reductionOptional, int64_t ignoreIndex, double labelSmoothing,
             double lseSquareScaleForZloss, SIM_OUT const aclTensor *out);

// aclnn_chamfer_distance_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnChamferDistanceBackward, const aclTensor *xyz1, const aclTensor *xyz2,
             const aclTensor *idx1, const aclTensor *idx2, const aclTensor *gradDist1,
             const aclTensor *gradDist2, SIM_OUT aclTensor *gradXyz1, SIM_OUT aclTensor *gradXyz2);

// aclnn_logit_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnLogitGrad, const aclTensor *x, const aclTensor *dy, double eps,
             SIM_OUT const aclTensor *out);

// aclnn_fused_linear_cross_entropy_loss_grad.h; nn; 9.x
SIM_OPERATOR(aclnnFusedLinearCrossEntropyLossGrad, const aclTensor *grad, const aclTensor *input,
             const aclTensor *weight, const aclTensor *targetMask, const aclTensor *maskedTarget,
             float labelSmoothing, SIM_OPTIONAL const aclTensor *logitsMaxOptional,
             SIM_OPTIONAL const aclTensor *sumExpLogitsOptional,
             SIM_OPTIONAL const aclTensor *softmaxOptional, SIM_OUT aclTensor *inputGradOut,
             SIM_OUT aclTensor *weightGradOut);

// ---- Activations and softmax, backward ----

// aclnn_softmax_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftmaxBackward, const aclTensor *gradOutput, const aclTensor *output,
             int64_t dim, SIM_OUT aclTensor *out);

// aclnn_logsoftmax_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnLogSoftmaxBackward, const aclTensor *gradOutput, const aclTensor *output,
             int64_t dim, SIM_OUT aclTensor *out);

// aclnn_sigmoid_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSigmoidBackward, const aclTensor *gradOutput, const aclTensor *output,
             SIM_OUT aclTensor *gradInput);

// aclnn_logsigmoid_backward.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnLogSigmoidBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *buffer, SIM_OUT aclTensor *gradInput);

// aclnn_tanh_backward.h; math; 8.1 9.x
SIM_OPERATOR(aclnnTanhBackward, const aclTensor *gradOutput, const aclTensor *output,
             SIM_OUT aclTensor *gradInput);

// aclnn_silu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSiluBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *gradInput);

// aclnn_swish_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSwishBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OPTIONAL const aclScalar *betaOptional, SIM_OUT aclTensor *gradInput);

// aclnn_gelu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGeluBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT const aclTensor *gradInput);

// aclnn_gelu_backward_v2.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnGeluBackwardV2, const aclTensor *gradOutput, const aclTensor *self,
             char *approximate, SIM_OUT aclTensor *gradInput);

// aclnn_fast_gelu_backward.h; nn; 9.x
SIM_OPERATOR(aclnnFastGeluBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *gradInput);

// aclnn_threshold_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnThresholdBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *threshold, SIM_OUT aclTensor *out);

// aclnn_relu_grad_v4.h; none; 9.x
SIM_OPERATOR(aclnnReluGradV4, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *threshold, SIM_OUT aclTensor *out);

// aclnn_leaky_relu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnLeakyReluBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *negativeSlope, bool selfIsResult, SIM_OUT aclTensor *out);

// aclnn_prelu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnPreluBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *weight, SIM_OUT aclTensor *gradInput, SIM_OUT aclTensor *gradWeight);

// aclnn_elu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnEluBackward, const aclTensor *gradOutput, const aclScalar *alpha,
             const aclScalar *scale, const aclScalar *inputScale, bool isResult,
             const aclTensor *selfOrResult, SIM_OUT aclTensor *gradInput);

// aclnn_selu_backward.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnSeluBackward, const aclTensor *gradOutput, const aclTensor *result,
             SIM_OUT aclTensor *gradInput);

// aclnn_hardtanh_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnHardtanhBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *min, const aclScalar *max, SIM_OUT aclTensor *out);

// aclnn_hardsigmoid_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnHardsigmoidBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *out);

// aclnn_hardswish_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnHardswishBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *out);

// aclnn_hardswish_backward_v2.h; nn; 9.x
SIM_OPERATOR(aclnnHardswishBackwardV2, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *out);

// aclnn_hardshrink_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnHardshrinkBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *lambd, SIM_OUT aclTensor *gradInput);

// aclnn_softshrink_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftshrinkBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *lambda, SIM_OUT aclTensor *gradInput);

// aclnn_softplus_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftplusBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclScalar *beta, const aclScalar *threshold, SIM_OUT aclTensor *gradInput);

// aclnn_mish.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMish, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_mish_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMishBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *gradInput);

// aclnn_glu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGluBackward, const aclTensor *gradOut, const aclTensor *self, int64_t dim,
             SIM_OUT const aclTensor *out);

// aclnn_geglu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGeGluBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *gelu, int64_t dim, int64_t approximate, SIM_OUT aclTensor *gradInput);

// aclnn_geglu_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGeGluV3Backward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *gelu, int64_t dim, int64_t approximate, bool activateLeft,
             SIM_OUT aclTensor *gradInput);

// aclnn_swi_glu_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnSwiGluGrad, const aclTensor *yGrad, const aclTensor *x, int64_t dim,
             SIM_OUT const aclTensor *out);

// aclnn_swiglu_group_grad.h; nn; 9.x
SIM_OPERATOR(aclnnSwigluGroupGrad, const aclTensor *gradY, const aclTensor *x,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *yOriginOptional,
             SIM_OPTIONAL const aclTensor *groupIndexOptional, float clampLimit,
             SIM_OUT aclTensor *gradXOut, SIM_OPTIONAL SIM_OUT aclTensor *gradWeightOutOptional);

// aclnn_group_norm_swish_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnGroupNormSwishGrad, const aclTensor *dy, const aclTensor *mean,
             const aclTensor *rstd, const aclTensor *x, const aclTensor *gamma,
             const aclTensor *beta, int64_t numGroups, SIM_OPTIONAL char *dataFormatOptional,
             double swishScale, bool dgammaIsRequire, bool dbetaIsRequire,
             SIM_OUT const aclTensor *dxOut, SIM_OUT const aclTensor *dgammaOut,
             SIM_OUT const aclTensor *dbetaOut);

// aclnn_scaled_masked_softmax_backward.h; nn; 8.1 9.x; level2
SIM_OPERATOR(aclnnScaledMaskedSoftmaxBackward, const aclTensor *gradOutput, const aclTensor *y,
             const aclTensor *mask, double scale, bool fixTriuMask, SIM_OUT aclTensor *out);

// ---- Others ----

// aclnn_repeat_interleave_grad.h; nn; 9.x; generated
SIM_OPERATOR(aclnnRepeatInterleaveGrad, const aclTensor *yGrad, const aclTensor *repeats,
             int64_t axis, SIM_OUT const aclTensor *out);

// aclnn_dropout_backward.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnDropoutBackward, const aclTensor *gradOutput, const aclTensor *mask, double scale,
             SIM_OUT aclTensor *out);

// aclnn_dropout_do_mask.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnDropoutDoMask, const aclTensor *self, const aclTensor *mask, double prob,
             SIM_OUT aclTensor *out);

// aclnn_embedding_dense_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnEmbeddingDenseBackward, const aclTensor *grad, const aclTensor *indices,
             uint64_t numWeights, uint64_t paddingIdx, bool scaleGradByFreq,
             SIM_OUT const aclTensor *out);

// aclnn_layer_norm_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnLayerNormBackward, const aclTensor *gradOut, const aclTensor *input,
             const aclIntArray *normalizedShape, const aclTensor *mean, const aclTensor *rstd,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *biasOptional, const aclBoolArray *outputMask,
             SIM_OPTIONAL SIM_OUT aclTensor *gradInputOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradWeightOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradBiasOut);

// aclnn_batch_norm_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNormBackward, const aclTensor *gradOut, const aclTensor *input,
             SIM_OPTIONAL const aclTensor *weight, SIM_OPTIONAL const aclTensor *runningMean,
             SIM_OPTIONAL const aclTensor *runningVar, SIM_OPTIONAL const aclTensor *saveMean,
             SIM_OPTIONAL const aclTensor *saveInvstd, bool training, double eps,
             const aclBoolArray *outputMask, SIM_OPTIONAL SIM_OUT aclTensor *gradInput,
             SIM_OPTIONAL SIM_OUT aclTensor *gradWeight,
             SIM_OPTIONAL SIM_OUT aclTensor *gradBias);

// aclnn_group_norm_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGroupNormBackward, const aclTensor *gradOut, const aclTensor *input,
             const aclTensor *mean, const aclTensor *rstd, SIM_OPTIONAL const aclTensor *gamma, int64_t N,
             int64_t C, int64_t HxW, int64_t group, const aclBoolArray *outputMask,
             SIM_OPTIONAL SIM_OUT aclTensor *gradInput,
             SIM_OPTIONAL SIM_OUT aclTensor *gradGammaOut,
             SIM_OPTIONAL SIM_OUT aclTensor *gradBetaOut);

// aclnn_avgpool2d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAvgPool2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclIntArray *kernelSize, SIM_OPTIONAL const aclIntArray *stride,
             const aclIntArray *padding, bool ceilMode, bool countIncludePad,
             int64_t divisorOverride, int8_t cubeMathType, SIM_OUT aclTensor *gradInput);
// aclnn_adaptive_avg_pool2d_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveAvgPool2dBackward, const aclTensor *gradOutput, const aclTensor *self,
             SIM_OUT aclTensor *out);
// aclnn_max_pool2d_with_mask_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxPool2dWithMaskBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, const aclIntArray *kernelSize, const aclIntArray *stride,
             const aclIntArray *padding, const aclIntArray *dilation, bool ceilMode,
             SIM_OUT aclTensor *gradInput);
// aclnn_max_pool2d_with_indices_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxPool2dWithIndicesBackward, const aclTensor *gradOutput, const aclTensor *self,
             const aclTensor *indices, const aclIntArray *kernelSize, const aclIntArray *stride,
             const aclIntArray *padding, const aclIntArray *dilation, bool ceilMode,
             SIM_OUT aclTensor *gradInput);
