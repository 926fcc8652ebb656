"""CANN's public pages of gradients: which operators of them npucall has, and why not the others."""

from __future__ import annotations

import page_parts

from npucall.operators import CATALOGUE

_LATER = "not yet"

PAGES: dict[str, str] = {
    "`ops-nn`, activation": """
        EluBackward GeluBackward GeluBackwardV2 GluBackward HardsigmoidBackward HardswishBackward
        HardswishBackwardV2 HardtanhBackward LeakyReluBackward LogSoftmaxBackward PreluBackward
        SigmoidBackward SiluBackward SoftmaxBackward SoftplusBackward ThresholdBackward
        BinaryCrossEntropyWithLogitsTargetBackward SwiGluGrad GeGluBackward GeGluV3Backward
        FastGeluBackward HardshrinkBackward LogSigmoidBackward MishBackward SeluBackward
        SoftshrinkBackward SwishBackward ClippedSwigluGrad SituGluGrad SwigluGroupQuantGrad
        """,
    "`ops-nn`, loss": """
        BinaryCrossEntropyBackward BinaryCrossEntropyWithLogitsBackward CrossEntropyLossGrad
        CtcLossBackward KlDivBackward KlDivTargetBackward L1LossBackward LogitGrad MseLossBackward
        NLLLossBackward NLLLoss2dBackward SmoothL1LossBackward SoftMarginLossBackward
        ChamferDistanceBackward
        """,
    "`ops-nn`, norm": """
        LayerNormBackward RmsNormGrad BatchNormBackward GroupNormBackward AddLayerNormGrad
        DeepNormGrad AdaLayerNormBackward GroupNormSwishGrad BatchNormReduceBackward
        BatchNormElemtBackward RmsNormGradQuant FastBatchNormBackward
        """,
    "`ops-nn`, conv and pooling": """
        ConvolutionBackward MaxPool2dWithIndicesBackward MaxPool2dWithMaskBackward
        AvgPool2dBackward AdaptiveAvgPool2dBackward AdaptiveAvgPool3dBackward AvgPool3dBackward
        MaxPool3dWithArgmaxBackward AdaptiveMaxPool2dBackward AdaptiveMaxPool3dBackward
        ConvTbcBackward DeformableConv2dBackward
        """,
    "`ops-nn`, index, rnn, vfusion, matmul, quant": """
        EmbeddingDenseBackward MaxUnpool2dBackward MaxUnpool3dBackward ScaledMaskedSoftmaxBackward
        ThnnFusedLstmCellBackward LstmBackward GRUBackward ModulateBackward
        FusedLinearCrossEntropyLossGrad RepeatInterleaveGrad MultiScaleDeformableAttentionGrad
        SwigluGroupGrad SwigluBackwardMxQuantWithDualAxis
        """,
    "`ops-math`": """
        TanhBackward ReflectionPad1dBackward ReflectionPad2dBackward ReflectionPad3dBackward
        ReplicationPad1dBackward ReplicationPad2dBackward ReplicationPad3dBackward
        CircularPad2dBackward CircularPad3dBackward UnfoldGrad CdistBackward DropoutBackward
        DropoutV3Grad GroupedBiasAddGrad GroupedBiasAddGradV2 ExpSegsumBackward
        """,
    "`ops-transformer`": """
        FlashAttentionScoreGrad FlashAttentionScoreGradV2 FlashAttentionUnpaddingScoreGrad
        FlashAttentionUnpaddingScoreGradV2 FlashAttentionUnpaddingScoreGradV4
        RotaryPositionEmbeddingGrad MoeTokenPermuteGrad MoeTokenUnpermuteGrad MoeInitRoutingV2Grad
        MoeFinalizeRoutingV2Grad MoeTokenPermuteWithEpGrad MoeTokenUnpermuteWithEpGrad
        MoeTokenPermuteWithRoutingMapGrad MoeTokenUnpermuteWithRoutingMapGrad
        FlashAttentionScoreGradV3 FlashAttentionUnpaddingScoreGradV3
        FlashAttentionUnpaddingScoreGradV5 NsaCompressGrad NsaSelectedAttentionGrad
        SparseFlashAttentionGrad LightningIndexerGrad SparseLightningIndexerGradKLLoss
        NormRopeConcatBackward
        """,
    "`ops-cv`": """
        UpsampleNearest1dBackward UpsampleNearest2dBackward UpsampleNearest3dBackward
        UpsampleNearestExact1dBackward UpsampleNearestExact2dBackward
        UpsampleNearestExact3dBackward UpsampleLinear1dBackward UpsampleBilinear2dBackward
        UpsampleBilinear2dBackwardV2 UpsampleBicubic2dBackward UpsampleTrilinear3dBackward
        UpsampleBilinear2dAABackward UpsampleBicubic2dAAGrad GridSampler2DBackward
        GridSampler3DBackward Im2colBackward RoiAlignV2Backward ThreeInterpolateBackward
        RoiPoolingGradWithArgMax
        """,
}
"""By repository and folder, without ``aclnn``."""
REASONS: dict[str, str] = {
    "their numbers are quantised": """
        SwigluGroupQuantGrad RmsNormGradQuant SwigluBackwardMxQuantWithDualAxis
        """,
    "a switch of BatchNormBackward, on Atlas A2 alone": "FastBatchNormBackward",
    "for one family of models": """
        ExpSegsumBackward NsaCompressGrad NsaSelectedAttentionGrad SparseFlashAttentionGrad
        LightningIndexerGrad SparseLightningIndexerGradKLLoss NormRopeConcatBackward
        """,
    "FP8, parts of rotary embedding, or a sink": """
        FlashAttentionScoreGradV3 FlashAttentionUnpaddingScoreGradV3
        FlashAttentionUnpaddingScoreGradV5
        """,
    "for a part of the experts, of several devices": """
        MoeTokenPermuteWithEpGrad MoeTokenUnpermuteWithEpGrad
        """,
    "MoeTokenPermute and its gradient with a map of experts in place of their numbers": """
        MoeTokenPermuteWithRoutingMapGrad MoeTokenUnpermuteWithRoutingMapGrad
        """,
    "on Ascend 950 alone": """
        RoiPoolingGradWithArgMax SwigluGroupGrad DropoutV3Grad
        """,
    "for detectors that sample at offsets": """
        DeformableConv2dBackward MultiScaleDeformableAttentionGrad
        """,
    "for clouds of points, with another shape on each product": "ThreeInterpolateBackward",
}
"""Why an operator is not there; others are not there yet."""


def section() -> str:
    """A row for each folder."""
    names = {operator.name.removeprefix("aclnn") for operator in CATALOGUE}
    why = {name: reason for reason, listed in REASONS.items() for name in listed.split()}
    every = {name for listed in PAGES.values() for name in listed.split()}
    if unlisted := why.keys() - every:
        raise ValueError(f"REASONS: expected names of PAGES, found {sorted(unlisted)}")
    rows = []
    for folder, listed in PAGES.items():
        pages = listed.split()
        missing: dict[str, list[str]] = {}
        for name in pages:
            if name not in names:
                missing.setdefault(why.get(name, _LATER), []).append(name)
        served = len(pages) - sum(map(len, missing.values()))
        told = [f"{', '.join(some)} ({reason})" for reason, some in missing.items()]
        rows.append((folder, f"{served} of {len(pages)}", "; ".join(told)))
    return page_parts.table(("repository, folder", "here", "not here, and why"), rows)
