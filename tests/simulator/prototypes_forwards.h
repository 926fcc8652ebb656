// Forward operators that npucall declares, and a few relatives; same form as prototypes.h.
#pragma once

#include "prototypes.h"

// ---- Losses, forward ----

// aclnn_kl_div.h; math; 8.1 9.x
SIM_OPERATOR(aclnnKlDiv, const aclTensor *self, const aclTensor *target, int64_t reduction,
             bool logTarget, SIM_OUT aclTensor *out);

// aclnn_l1_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnL1Loss, const aclTensor *self, const aclTensor *target, int64_t reduction,
             SIM_OUT aclTensor *out);

// aclnn_smooth_l1_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSmoothL1Loss, const aclTensor *self, const aclTensor *target, int64_t reduction,
             float beta, SIM_OUT aclTensor *result);

// aclnn_mse_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMseLoss, const aclTensor *self, const aclTensor *target, int64_t reduction,
             SIM_OUT aclTensor *out);

// aclnn_mse_loss_out.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMseLossOut, const aclTensor *self, const aclTensor *target, int64_t reduction,
             SIM_OUT aclTensor *out);

// aclnn_binary_cross_entropy.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBinaryCrossEntropy, const aclTensor *self, const aclTensor *target,
             SIM_OPTIONAL const aclTensor *weight, int64_t reduction, SIM_OUT aclTensor *out);

// aclnn_binary_cross_entropy_with_logits.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBinaryCrossEntropyWithLogits, const aclTensor *self, const aclTensor *target,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *posWeightOptional, int64_t reduction,
             SIM_OUT aclTensor *out);

// aclnn_soft_margin_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftMarginLoss, const aclTensor *self, const aclTensor *target, int64_t reduction,
             SIM_OUT aclTensor *out);

// aclnn_nll_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnNLLLoss, const aclTensor *self, const aclTensor *target, const aclTensor *weight,
             int64_t reduction, int64_t ignoreIndex, SIM_OUT aclTensor *out,
             SIM_OUT aclTensor *totalWeightOut);

// aclnn_nll_loss2d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnNLLLoss2d, const aclTensor *self, const aclTensor *target,
             const aclTensor *weight, int64_t reduction, int64_t ignoreIndex,
             SIM_OUT aclTensor *out, SIM_OUT aclTensor *totalWeightOut);

// aclnn_ctc_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnCtcLoss, const aclTensor *logProbs, const aclTensor *targets,
             const aclIntArray *inputLengths, const aclIntArray *targetlengths, int64_t blank,
             bool zeroInfinity, SIM_OUT aclTensor *negLogLikelihoodOut,
             SIM_OUT aclTensor *logAlphaOut);

// aclnn_cross_entropy_loss.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnCrossEntropyLoss, const aclTensor *input, const aclTensor *target,
             SIM_OPTIONAL const aclTensor *weightOptional, SIM_OPTIONAL char *reductionOptional,
             int64_t ignoreIndex, double labelSmoothing, double lseSquareScaleForZloss,
             bool returnZloss, SIM_OUT const aclTensor *lossOut,
             SIM_OUT const aclTensor *logProbOut, SIM_OUT const aclTensor *zlossOut,
             SIM_OUT const aclTensor *lseForZlossOut);

// aclnn_multilabel_margin_loss.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMultilabelMarginLoss, const aclTensor *self, const aclTensor *target,
             int64_t reduction, SIM_OUT aclTensor *out, SIM_OUT aclTensor *isTarget);

// aclnn_logit.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnLogit, const aclTensor *input, double eps, SIM_OUT const aclTensor *out);

// ---- Activations and softmax, forward ----

// aclnn_softmax.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnSoftmax, const aclTensor *self, int64_t dim, SIM_OUT aclTensor *out);

// aclnn_logsoftmax.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnLogSoftmax, const aclTensor *self, int64_t dim, SIM_OUT aclTensor *out);

// aclnn_gelu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGelu, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_gelu_v2.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnGeluV2, const aclTensor *x, int64_t approximate, SIM_OUT aclTensor *y);

// aclnn_silu.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnSilu, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_sigmoid.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSigmoid, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_sigmoid.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceSigmoid, SIM_OUT aclTensor *selfRef);

// aclnn_tanh.h; math; 8.1 9.x
SIM_OPERATOR(aclnnTanh, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_hardsigmoid.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnHardsigmoid, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_hardswish.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnHardswish, const aclTensor *self, SIM_OUT const aclTensor *out);

// aclnn_threshold.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnThreshold, const aclTensor *self, const aclScalar *threshold,
             const aclScalar *value, SIM_OUT aclTensor *out);

// aclnn_leaky_relu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnLeakyRelu, const aclTensor *self, const aclScalar *negativeSlope,
             SIM_OUT aclTensor *out);

// aclnn_elu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnElu, const aclTensor *self, const aclScalar *alpha, const aclScalar *scale,
             const aclScalar *inputScale, SIM_OUT aclTensor *out);

// aclnn_hardtanh.h; math; 8.1 9.x
SIM_OPERATOR(aclnnHardtanh, const aclTensor *self, const aclScalar *clipValueMin,
             const aclScalar *clipValueMax, SIM_OUT aclTensor *out);

// aclnn_softplus.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftplus, const aclTensor *self, const aclScalar *beta,
             const aclScalar *threshold, SIM_OUT aclTensor *out);

// aclnn_prelu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnPrelu, const aclTensor *self, const aclTensor *weight, SIM_OUT aclTensor *out);

// aclnn_glu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGlu, const aclTensor *self, int64_t dim, SIM_OUT const aclTensor *out);

// ---- Element-wise, sums, products ----

// aclnn_add.h; math; 8.1 9.x
SIM_OPERATOR(aclnnAdd, const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
             SIM_OUT aclTensor *out);

// aclnn_sub.h; math; 8.1 9.x
SIM_OPERATOR(aclnnSub, const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
             SIM_OUT aclTensor *out);

// aclnn_mul.h; math; 8.1 9.x
SIM_OPERATOR(aclnnMul, const aclTensor *self, const aclTensor *other, SIM_OUT aclTensor *out);

// aclnn_mul.h; math; 8.1 9.x
SIM_OPERATOR(aclnnMuls, const aclTensor *self, const aclScalar *other, SIM_OUT aclTensor *out);

// aclnn_div.h; math; 8.1 9.x
SIM_OPERATOR(aclnnDiv, const aclTensor *self, const aclTensor *other, SIM_OUT aclTensor *out);

// aclnn_exp.h; math; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnExp, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_log.h; math; 8.1 9.x
SIM_OPERATOR(aclnnLog, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_cast.h; math; 8.1 9.x
SIM_OPERATOR(aclnnCast, const aclTensor *self, const aclDataType dtype, SIM_OUT aclTensor *out);

// aclnn_reduce_sum.h; math; 8.1 9.x
SIM_OPERATOR(aclnnReduceSum, const aclTensor *self, const aclIntArray *dims, bool keepDims,
             aclDataType dtype, SIM_OUT aclTensor *out);

// aclnn_sum.h; math; 8.1 9.x
SIM_OPERATOR(aclnnSum, const aclTensorList *tensors, SIM_OUT aclTensor *out);

// aclnn_mean.h; math; 8.1 9.x
SIM_OPERATOR(aclnnMean, const aclTensor *self, const aclIntArray *dim, bool keepDim,
             aclDataType dtype, SIM_OUT aclTensor *out);

// aclnn_matmul.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMatmul, const aclTensor *self, const aclTensor *mat2, SIM_OUT aclTensor *out,
             int8_t cubeMathType);

// aclnn_layer_norm.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnLayerNorm, const aclTensor *input, const aclIntArray *normalizedShape,
             SIM_OPTIONAL const aclTensor *weightOptional,
             SIM_OPTIONAL const aclTensor *biasOptional, double eps, SIM_OUT aclTensor *out,
             SIM_OPTIONAL SIM_OUT aclTensor *meanOutOptional,
             SIM_OPTIONAL SIM_OUT aclTensor *rstdOutOptional);

// aclnn_rms_norm.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnRmsNorm, const aclTensor *x, const aclTensor *gamma, double epsilon,
             SIM_OUT const aclTensor *yOut, SIM_OUT const aclTensor *rstdOut);

// aclnn_rms_norm_grad.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnRmsNormGrad, const aclTensor *dy, const aclTensor *x, const aclTensor *rstd,
             const aclTensor *gamma, SIM_OUT const aclTensor *dxOut,
             SIM_OUT const aclTensor *dgammaOut);

// ---- Layers ----

// aclnn_flash_attention_score.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionScore, const aclTensor *query, const aclTensor *key,
             const aclTensor *value, SIM_OPTIONAL const aclTensor *realShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional, double scaleValue, double keepProb,
             int64_t preTokens, int64_t nextTokens, int64_t headNum, char *inputLayout,
             int64_t innerPrecise, int64_t sparseMode, SIM_OUT const aclTensor *softmaxMaxOut,
             SIM_OUT const aclTensor *softmaxSumOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *softmaxOutOut,
             SIM_OUT const aclTensor *attentionOutOut);

// aclnn_flash_attention_score_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionScoreGrad, const aclTensor *query, const aclTensor *keyIn,
             const aclTensor *value, const aclTensor *dy,
             SIM_OPTIONAL const aclTensor *pseShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             const aclTensor *softmaxMaxOptional, const aclTensor *softmaxSumOptional,
             SIM_OPTIONAL const aclTensor *softmaxInOptional,
             const aclTensor *attentionInOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional, double scaleValue, double keepProb,
             int64_t preTokens, int64_t nextTokens, int64_t headNum, char *inputLayout,
             int64_t innerPrecise, int64_t sparseMode, SIM_OUT const aclTensor *dqOut,
             SIM_OUT const aclTensor *dkOut, SIM_OUT const aclTensor *dvOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *dpseOut);

// aclnn_flash_attention_score.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionScoreV2, const aclTensor *query, const aclTensor *key,
             const aclTensor *value, SIM_OPTIONAL const aclTensor *realShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             SIM_OPTIONAL const aclIntArray *qStartIdxOptional,
             SIM_OPTIONAL const aclIntArray *kvStartIdxOptional, double scaleValue,
             double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum,
             char *inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
             SIM_OUT const aclTensor *softmaxMaxOut, SIM_OUT const aclTensor *softmaxSumOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *softmaxOutOut,
             SIM_OUT const aclTensor *attentionOutOut);

// aclnn_flash_attention_score.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionVarLenScore, const aclTensor *query, const aclTensor *key,
             const aclTensor *value, SIM_OPTIONAL const aclTensor *realShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             const aclIntArray *actualSeqQLenOptional, const aclIntArray *actualSeqKvLenOptional,
             double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
             int64_t headNum, char *inputLayout, int64_t innerPrecise, int64_t sparseMode,
             SIM_OUT const aclTensor *softmaxMaxOut, SIM_OUT const aclTensor *softmaxSumOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *softmaxOutOut,
             SIM_OUT const aclTensor *attentionOutOut);

// aclnn_flash_attention_score.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV2, const aclTensor *query, const aclTensor *key,
             const aclTensor *value, SIM_OPTIONAL const aclTensor *realShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             const aclIntArray *actualSeqQLenOptional, const aclIntArray *actualSeqKvLenOptional,
             SIM_OPTIONAL const aclIntArray *qStartIdxOptional,
             SIM_OPTIONAL const aclIntArray *kvStartIdxOptional, double scaleValue,
             double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum,
             char *inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
             SIM_OUT const aclTensor *softmaxMaxOut, SIM_OUT const aclTensor *softmaxSumOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *softmaxOutOut,
             SIM_OUT const aclTensor *attentionOutOut);

// aclnn_flash_attention_score.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV4, const aclTensor *query, const aclTensor *key,
             const aclTensor *value, SIM_OPTIONAL const aclTensor *realShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             const aclIntArray *actualSeqQLenOptional, const aclIntArray *actualSeqKvLenOptional,
             double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
             int64_t headNum, char *inputLayout, int64_t innerPrecise, int64_t sparseMode,
             char *softmaxOutLayout, SIM_OUT const aclTensor *softmaxMaxOut,
             SIM_OUT const aclTensor *softmaxSumOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *softmaxOutOut,
             SIM_OUT const aclTensor *attentionOutOut);

// aclnn_flash_attention_score_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionScoreGradV2, const aclTensor *query, const aclTensor *keyIn,
             const aclTensor *value, const aclTensor *dy,
             SIM_OPTIONAL const aclTensor *pseShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             const aclTensor *softmaxMaxOptional, const aclTensor *softmaxSumOptional,
             SIM_OPTIONAL const aclTensor *softmaxInOptional,
             const aclTensor *attentionInOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             SIM_OPTIONAL const aclIntArray *qStartIdxOptional,
             SIM_OPTIONAL const aclIntArray *kvStartIdxOptional, double scaleValue,
             double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum,
             char *inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
             SIM_OUT const aclTensor *dqOut, SIM_OUT const aclTensor *dkOut,
             SIM_OUT const aclTensor *dvOut, SIM_OPTIONAL SIM_OUT const aclTensor *dpseOut);

// aclnn_flash_attention_score_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGrad, const aclTensor *query,
             const aclTensor *keyIn, const aclTensor *value, const aclTensor *dy,
             SIM_OPTIONAL const aclTensor *pseShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             const aclTensor *softmaxMaxOptional, const aclTensor *softmaxSumOptional,
             SIM_OPTIONAL const aclTensor *softmaxInOptional,
             const aclTensor *attentionInOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             const aclIntArray *actualSeqQLenOptional, const aclIntArray *actualSeqKvLenOptional,
             double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
             int64_t headNum, char *inputLayout, int64_t innerPrecise, int64_t sparseMode,
             SIM_OUT const aclTensor *dqOut, SIM_OUT const aclTensor *dkOut,
             SIM_OUT const aclTensor *dvOut, SIM_OPTIONAL SIM_OUT const aclTensor *dpseOut);

// aclnn_flash_attention_score_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV2, const aclTensor *query,
             const aclTensor *keyIn, const aclTensor *value, const aclTensor *dy,
             SIM_OPTIONAL const aclTensor *pseShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             const aclTensor *softmaxMaxOptional, const aclTensor *softmaxSumOptional,
             SIM_OPTIONAL const aclTensor *softmaxInOptional,
             const aclTensor *attentionInOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             const aclIntArray *actualSeqQLenOptional, const aclIntArray *actualSeqKvLenOptional,
             SIM_OPTIONAL const aclIntArray *qStartIdxOptional,
             SIM_OPTIONAL const aclIntArray *kvStartIdxOptional, double scaleValue,
             double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum,
             char *inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
             SIM_OUT const aclTensor *dqOut, SIM_OUT const aclTensor *dkOut,
             SIM_OUT const aclTensor *dvOut, SIM_OPTIONAL SIM_OUT const aclTensor *dpseOut);

// aclnn_flash_attention_score_grad.h; opapi; 8.1 9.x
SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV4, const aclTensor *query,
             const aclTensor *keyIn, const aclTensor *value, const aclTensor *dy,
             SIM_OPTIONAL const aclTensor *pseShiftOptional,
             SIM_OPTIONAL const aclTensor *dropMaskOptional,
             SIM_OPTIONAL const aclTensor *paddingMaskOptional,
             SIM_OPTIONAL const aclTensor *attenMaskOptional,
             const aclTensor *softmaxMaxOptional, const aclTensor *softmaxSumOptional,
             SIM_OPTIONAL const aclTensor *softmaxInOptional,
             const aclTensor *attentionInOptional,
             SIM_OPTIONAL const aclIntArray *prefixOptional,
             const aclIntArray *actualSeqQLenOptional, const aclIntArray *actualSeqKvLenOptional,
             double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
             int64_t headNum, char *inputLayout, int64_t innerPrecise, int64_t sparseMode,
             SIM_OUT const aclTensor *dqOut, SIM_OUT const aclTensor *dkOut,
             SIM_OUT const aclTensor *dvOut, SIM_OPTIONAL SIM_OUT const aclTensor *dpseOut,
             char *softmaxInLayout);

// aclnn_swi_glu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSwiGlu, const aclTensor *x, int64_t dim, SIM_OUT const aclTensor *out);

// aclnn_embedding.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnEmbedding, const aclTensor *weight, const aclTensor *indices,
             SIM_OUT const aclTensor *out);

// aclnn_convolution.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnConvolution, const aclTensor *input, const aclTensor *weight,
             SIM_OPTIONAL const aclTensor *bias, const aclIntArray *stride,
             const aclIntArray *padding, const aclIntArray *dilation, bool transposed,
             const aclIntArray *outputPadding, int64_t groups, SIM_OUT aclTensor *output,
             int8_t cubeMathType);

// aclnn_convolution_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnConvolutionBackward, const aclTensor *gradOutput, const aclTensor *input,
             const aclTensor *weight, SIM_OPTIONAL const aclIntArray *biasSizes,
             const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
             bool transposed, const aclIntArray *outputPadding, int groups,
             const aclBoolArray *outputMask, int8_t cubeMathType,
             SIM_OPTIONAL SIM_OUT aclTensor *gradInput, SIM_OPTIONAL SIM_OUT aclTensor *gradWeight,
             SIM_OPTIONAL SIM_OUT aclTensor *gradBias);

// aclnn_convolution_backward.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnConvTbcBackward, const aclTensor *self, const aclTensor *input,
             const aclTensor *weight, const aclTensor *bias, int64_t pad, int8_t cubeMathType,
             SIM_OUT aclTensor *gradInput, SIM_OUT aclTensor *gradWeight,
             SIM_OUT aclTensor *gradBias);

// aclnn_batch_norm.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchNorm, const aclTensor *input, SIM_OPTIONAL const aclTensor *weight,
             SIM_OPTIONAL const aclTensor *bias, SIM_OPTIONAL SIM_OUT aclTensor *runningMean,
             SIM_OPTIONAL SIM_OUT aclTensor *runningVar, bool training, double momentum, double eps,
             SIM_OUT aclTensor *output, SIM_OPTIONAL SIM_OUT aclTensor *saveMean,
             SIM_OPTIONAL SIM_OUT aclTensor *saveInvstd);

// aclnn_rotary_position_embedding.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnRotaryPositionEmbedding, const aclTensor *x, const aclTensor *cos,
             const aclTensor *sin, int64_t mode, SIM_OUT aclTensor *out);

// aclnn_rotary_position_embedding_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnRotaryPositionEmbeddingGrad, const aclTensor *dy, const aclTensor *cos,
             const aclTensor *sin, SIM_OPTIONAL const aclTensor *x, int64_t mode,
             SIM_OUT const aclTensor *dxOut, SIM_OPTIONAL SIM_OUT const aclTensor *dcosOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *dsinOut);
// aclnn_group_norm.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGroupNorm, const aclTensor *self, SIM_OPTIONAL const aclTensor *gamma,
             SIM_OPTIONAL const aclTensor *beta, int64_t N, int64_t C, int64_t HxW, int64_t group,
             double eps, SIM_OUT aclTensor *out, SIM_OUT aclTensor *meanOut,
             SIM_OUT aclTensor *rstdOut);
// aclnn_avgpool2d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAvgPool2d, const aclTensor *self, const aclIntArray *kernelSize,
             const aclIntArray *stride, const aclIntArray *padding, bool ceilMode,
             bool countIncludePad, int64_t divisorOverride, int8_t cubeMathType,
             SIM_OUT aclTensor *out);
// aclnn_adaptive_avg_pool2d.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnAdaptiveAvgPool2d, const aclTensor *self, const aclIntArray *outputSize,
             SIM_OUT aclTensor *out);
// aclnn_max_pool2d_with_mask.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxPool2dWithMask, const aclTensor *self, const aclIntArray *kernelSize,
             const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
             bool ceilMode, SIM_OUT aclTensor *out, SIM_OUT aclTensor *indices);
// aclnn_max_pool2d_with_indices.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnMaxPool2dWithIndices, const aclTensor *self, const aclIntArray *kernelSize,
             const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
             bool ceilMode, SIM_OUT aclTensor *out, SIM_OUT aclTensor *indices);

// aclnn_geglu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGeGlu, const aclTensor *self, int64_t dim, int64_t approximate,
             SIM_OUT aclTensor *out, SIM_OUT aclTensor *outGelu);

// aclnn_geglu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGeGluV3, const aclTensor *self, int64_t dim, int64_t approximate,
             bool activateLeft, SIM_OUT aclTensor *out, SIM_OUT aclTensor *outGelu);

// aclnn_add_layer_norm.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnAddLayerNorm, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
             const aclTensor *beta, SIM_OPTIONAL const aclTensor *biasOptional, double epsilon,
             bool additionalOutput, SIM_OUT const aclTensor *yOut,
             SIM_OUT const aclTensor *meanOut, SIM_OUT const aclTensor *rstdOut,
             SIM_OUT const aclTensor *xOut);

// aclnn_add_layer_norm_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnAddLayerNormGrad, const aclTensor *dy, const aclTensor *x1, const aclTensor *x2,
             const aclTensor *rstd, const aclTensor *mean, const aclTensor *gamma,
             SIM_OPTIONAL const aclTensor *dsumOptional, SIM_OUT const aclTensor *dxOut,
             SIM_OUT const aclTensor *dgammaOut, SIM_OUT const aclTensor *dbetaOut);

// aclnn_swish.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSwish, const aclTensor *self, SIM_OPTIONAL const aclScalar *betaOptional,
             SIM_OUT aclTensor *out);

// aclnn_fast_gelu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnFastGelu, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_shrink.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnShrink, const aclTensor *self, const aclScalar *lambd, const aclScalar *bias,
             SIM_OUT aclTensor *out);

// aclnn_hardshrink.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnHardshrink, const aclTensor *self, const aclScalar *lambd,
             SIM_OUT aclTensor *out);

// aclnn_softshrink.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnSoftshrink, const aclTensor *self, const aclScalar *lambd,
             SIM_OUT aclTensor *out);

// aclnn_selu.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnSelu, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_celu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnCelu, const aclTensor *self, const aclScalar *alpha, SIM_OUT aclTensor *out);

// aclnn_logsigmoid.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnLogSigmoid, const aclTensor *self, SIM_OUT aclTensor *out);

// aclnn_deep_norm.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnDeepNorm, const aclTensor *x, const aclTensor *gx, const aclTensor *beta,
             const aclTensor *gamma, double alpha, double epsilon,
             SIM_OUT const aclTensor *meanOut, SIM_OUT const aclTensor *rstdOut,
             SIM_OUT const aclTensor *yOut);

// aclnn_deep_norm_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnDeepNormGrad, const aclTensor *dy, const aclTensor *x, const aclTensor *gx,
             const aclTensor *gamma, const aclTensor *mean, const aclTensor *rstd, double alpha,
             SIM_OUT const aclTensor *dxOut, SIM_OUT const aclTensor *dgxOut,
             SIM_OUT const aclTensor *dbetaOut, SIM_OUT const aclTensor *dgammaOut);

// aclnn_clipped_swiglu.h; opapi; 9.x; generated
SIM_OPERATOR(aclnnClippedSwiglu, const aclTensor *x,
             SIM_OPTIONAL const aclTensor *groupIndexOptional, int64_t dim, double alpha,
             double limit, double bias, bool interleaved, SIM_OUT const aclTensor *out);

// aclnn_clipped_swiglu_grad.h; opapi; 9.x; generated
SIM_OPERATOR(aclnnClippedSwigluGrad, const aclTensor *gradY, const aclTensor *x,
             SIM_OPTIONAL const aclTensor *groupIndexOptional, int64_t dim, double alpha,
             double limit, double bias, bool interleaved, SIM_OUT const aclTensor *gradXOut);

// aclnn_batch_matmul.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnBatchMatMul, const aclTensor *self, const aclTensor *mat2,
             SIM_OUT aclTensor *out, int8_t cubeMathType);

// ---- Indices ----

// aclnn_index_select.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnIndexSelect, const aclTensor *self, int64_t dim, const aclTensor *index,
             SIM_OUT aclTensor *out);

// aclnn_index_add.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnIndexAdd, const aclTensor *self, const int64_t dim, const aclTensor *index,
             const aclTensor *source, const aclScalar *alpha, SIM_OUT aclTensor *out);

// aclnn_gather.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnGather, const aclTensor *self, const int64_t dim, const aclTensor *index,
             SIM_OUT aclTensor *out);

// aclnn_scatter_add.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnScatterAdd, const aclTensor *self, int64_t dim, const aclTensor *index,
             const aclTensor *src, SIM_OUT aclTensor *out);

// aclnn_index_fill.h; nn; 9.x
SIM_OPERATOR(aclnnIndexFill, const aclTensor *self, int64_t dim, const aclTensor *index,
             const aclScalar *value, SIM_OUT aclTensor *out);

// aclnn_index_fill_tensor.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnIndexFillTensor, const aclTensor *self, int64_t dim, const aclIntArray *index,
             const aclScalar *value, SIM_OUT aclTensor *out);

// aclnn_index_put_impl.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnIndexPutImpl, SIM_OUT aclTensor *selfRef, const aclTensorList *indices,
             const aclTensor *values, const bool accumulate, const bool unsafe);

// aclnn_permute.h; math; 8.1 9.x
SIM_OPERATOR(aclnnPermute, const aclTensor *self, const aclIntArray *dims,
             SIM_OUT aclTensor *out);

// aclnn_cat.h; math; 8.1 9.x
SIM_OPERATOR(aclnnCat, const aclTensorList *tensors, int64_t dim, SIM_OUT aclTensor *out);

// aclnn_stack.h; math; 8.1 9.x
SIM_OPERATOR(aclnnStack, const aclTensorList *tensors, int64_t dim, SIM_OUT aclTensor *out);

// aclnn_gru_backward.h; nn; 9.x
SIM_OPERATOR(aclnnGRUBackward, const aclTensor *input, const aclTensorList *params,
             const aclTensor *hx, const aclTensor *dy, const aclTensor *dh,
             const aclTensorList *r, const aclTensorList *z, const aclTensorList *n,
             const aclTensorList *h_n, const aclTensorList *h,
             SIM_OPTIONAL const aclTensor *batchSizes, bool hasBias, int64_t numLayers,
             bool bidirectional, bool batchFirst, SIM_OUT aclTensor *dxOut,
             SIM_OUT aclTensor *dhPrevOut, SIM_OUT aclTensorList *dparamsOut);

// aclnn_lstm_backward.h; nn; 9.x
SIM_OPERATOR(aclnnLstmBackward, const aclTensor *input, const aclTensorList *hx,
             const aclTensorList *params, SIM_OPTIONAL const aclTensor *dy,
             SIM_OPTIONAL const aclTensor *dh, SIM_OPTIONAL const aclTensor *dc,
             const aclTensorList *i, const aclTensorList *g, const aclTensorList *f,
             const aclTensorList *o, const aclTensorList *h, const aclTensorList *c,
             const aclTensorList *tanhc, SIM_OPTIONAL const aclTensor *batchSizesOptional,
             bool hasBias, int64_t numLayers, double dropout, bool train, bool bidirectional,
             bool batchFirst, SIM_OPTIONAL const aclBoolArray *outputMask,
             SIM_OUT aclTensor *dxOut, SIM_OUT aclTensor *dhPrevOut, SIM_OUT aclTensor *dcPrevOut,
             SIM_OUT aclTensorList *dparamsOut);

// ---- Mixtures of experts ----

// aclnn_moe_token_permute.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeTokenPermute, const aclTensor *tokens, const aclTensor *indices,
             int64_t numOutTokens, bool paddedMode, SIM_OUT const aclTensor *permuteTokensOut,
             SIM_OUT const aclTensor *sortedIndicesOut);

// aclnn_moe_token_permute_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeTokenPermuteGrad, const aclTensor *permutedOutputGrad,
             const aclTensor *sortedIndices, int64_t numTopk, bool paddedMode,
             SIM_OUT aclTensor *out);

// aclnn_moe_token_unpermute.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeTokenUnpermute, const aclTensor *permutedTokens,
             const aclTensor *sortedIndices, SIM_OPTIONAL const aclTensor *probsOptional,
             bool paddedMode, SIM_OPTIONAL const aclIntArray *restoreShapeOptional,
             SIM_OUT aclTensor *out);

// aclnn_moe_token_unpermute_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeTokenUnpermuteGrad, const aclTensor *permutedTokens,
             const aclTensor *unpermutedTokensGrad, const aclTensor *sortedIndices,
             SIM_OPTIONAL const aclTensor *probsOptional, bool paddedMode,
             SIM_OPTIONAL const aclIntArray *restoreShapeOptional,
             SIM_OUT aclTensor *permutedTokensGradOut,
             SIM_OPTIONAL SIM_OUT aclTensor *probsGradOut);

// aclnn_moe_init_routing_v2.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeInitRoutingV2, const aclTensor *x, const aclTensor *expertIdx,
             int64_t activeNum, int64_t expertCapacity, int64_t expertNum, int64_t dropPadMode,
             int64_t expertTokensCountOrCumsumFlag, bool expertTokensBeforeCapacityFlag,
             SIM_OUT const aclTensor *expandedXOut, SIM_OUT const aclTensor *expandedRowIdxOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *expertTokensCountOrCumsumOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *expertTokensBeforeCapacityOut);

// aclnn_moe_init_routing_v2_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeInitRoutingV2Grad, const aclTensor *gradExpandedX,
             const aclTensor *expandedRowIdx, int64_t topK, int64_t dropPadMode,
             int64_t activeNum, SIM_OUT const aclTensor *out);

// aclnn_moe_finalize_routing_v2.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeFinalizeRoutingV2, const aclTensor *expandedX,
             const aclTensor *expandedRowIdx, SIM_OPTIONAL const aclTensor *x1Optional,
             SIM_OPTIONAL const aclTensor *x2Optional, SIM_OPTIONAL const aclTensor *biasOptional,
             SIM_OPTIONAL const aclTensor *scalesOptional,
             SIM_OPTIONAL const aclTensor *expertIdxOptional, int64_t dropPadMode,
             SIM_OUT const aclTensor *out);

// aclnn_moe_finalize_routing_v2_grad.h; opapi; 8.1 9.x; generated
SIM_OPERATOR(aclnnMoeFinalizeRoutingV2Grad, const aclTensor *gradY,
             const aclTensor *expandedRowIdx, SIM_OPTIONAL const aclTensor *expandedXOptional,
             SIM_OPTIONAL const aclTensor *scalesOptional,
             SIM_OPTIONAL const aclTensor *expertIdxOptional,
             SIM_OPTIONAL const aclTensor *biasOptional, int64_t dropPadMode, int64_t activeNum,
             int64_t expertNum, int64_t expertCapacity,
             SIM_OUT const aclTensor *gradExpandedXOut,
             SIM_OPTIONAL SIM_OUT const aclTensor *gradScalesOut);

// ---- In place ----

// aclnn_relu.h; nn; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnInplaceRelu, SIM_OUT aclTensor *selfRef);

// aclnn_exp.h; math; 8.1 9.x; no-workspace
SIM_OPERATOR(aclnnInplaceExp, SIM_OUT aclTensor *selfRef);

// aclnn_log.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceLog, SIM_OUT aclTensor *selfRef);

// aclnn_tanh.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceTanh, SIM_OUT aclTensor *selfRef);

// aclnn_hardtanh.h; math; 8.1 9.x
SIM_OPERATOR(aclnnInplaceHardtanh, SIM_OUT aclTensor *selfRef, const aclScalar *clipValueMin,
             const aclScalar *clipValueMax);

// aclnn_mish.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceMish, SIM_OUT aclTensor *selfRef);

// aclnn_selu.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnInplaceSelu, SIM_OUT aclTensor *selfRef);

// aclnn_celu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceCelu, SIM_OUT aclTensor *selfRef, const aclScalar *alpha);

// aclnn_leaky_relu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceLeakyRelu, SIM_OUT aclTensor *selfRef, const aclScalar *negativeSlope);

// aclnn_elu.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceElu, SIM_OUT aclTensor *selfRef, const aclScalar *alpha,
             const aclScalar *scale, const aclScalar *inputScale);

// aclnn_hardswish.h; nn; 8.1 9.x; any-rank
SIM_OPERATOR(aclnnInplaceHardswish, SIM_OUT aclTensor *selfRef);

// aclnn_hardsigmoid.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceHardsigmoid, SIM_OUT aclTensor *selfRef);

// aclnn_threshold.h; nn; 8.1 9.x
SIM_OPERATOR(aclnnInplaceThreshold, SIM_OUT aclTensor *selfRef, const aclScalar *threshold,
             const aclScalar *value);

// aclnn_thnn_fused_lstm_cell.h; nn; 9.x
SIM_OPERATOR(aclnnThnnFusedLstmCell, const aclTensor *inputGates, const aclTensor *hiddenGates,
             const aclTensor *cx, SIM_OPTIONAL const aclTensor *inputBiasOptional,
             SIM_OPTIONAL const aclTensor *hiddenBiasOptional, SIM_OUT aclTensor *hyOut,
             SIM_OUT aclTensor *cyOut, SIM_OUT aclTensor *storageOut);

// aclnn_thnn_fused_lstm_cell_backward.h; nn; 9.x
SIM_OPERATOR(aclnnThnnFusedLstmCellBackward, const aclTensor *gradHyOptional,
             const aclTensor *gradCOptional, const aclTensor *cx, const aclTensor *cy,
             const aclTensor *storage, bool hasBias, SIM_OUT aclTensor *gradGatesOut,
             SIM_OUT aclTensor *gradCxOut, SIM_OUT aclTensor *gradBiasOut);
