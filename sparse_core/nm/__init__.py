"""2:4 and N:M sparsity: scores, masks, permutation, training, and layers that run it.

The usual way: ``prune`` a model (or train it with ``attach_masks`` and ``MaskRefresher``), then ``sparsify``
it, which replaces its Linear layers by :class:`SparseLinear`.
"""

from sparse_core.common.surgery import Selection
from sparse_core.nm.allocation import allocate, attention_and_ends
from sparse_core.nm.allocation_report import Allocation, LayerAllocation
from sparse_core.nm.blocks import BlockSparseLinear
from sparse_core.nm.calibration import InputStatistics, collect_inputs
from sparse_core.nm.convert import densify, sparsify
from sparse_core.nm.convert_report import ConversionReport, ConvertedLayer, SkippedLayer
from sparse_core.nm.files import load_packed, save_packed
from sparse_core.nm.layers import SparseLinear
from sparse_core.nm.linear import UnpackedWarning, nm_linear, tuning
from sparse_core.nm.masks import block_mask, check_nm, nm_mask
from sparse_core.nm.one_shot import compensate_scale
from sparse_core.nm.pack import Compressed24, prune_and_pack, prune_and_pack_both
from sparse_core.nm.packed import PackedNM
from sparse_core.nm.packed_sizes import PackedSizeReport, packed_size_report
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.pattern_masks import magnitude_masks
from sparse_core.nm.permutation import Permutation, PermutationReport, permute_channels, permute_model
from sparse_core.nm.prune_report import LayerReport, PruneReport
from sparse_core.nm.pruning import prune
from sparse_core.nm.quantise import QuantisedWeight, SparseLinearInt8, quantise_weight
from sparse_core.nm.scores import GradientScore, magnitude, wanda
from sparse_core.nm.selection import selected_layers
from sparse_core.nm.sensitivity import layer_sensitivity
from sparse_core.nm.sensitivity_report import LayerSensitivity, SensitivityReport
from sparse_core.nm.sparsegpt import CalibrationWarning, SparseGPTResult, sparsegpt
from sparse_core.nm.training import (
    DistillationLoss,
    LayerwiseSchedule,
    MaskedModel,
    MaskRefresher,
    ProgressiveSchedule,
    SparseTrainingLinear,
    attach_masks,
    warmup_cosine,
)

__all__ = [
    "Allocation",
    "Block",
    "BlockSparseLinear",
    "CalibrationWarning",
    "Compressed24",
    "ConversionReport",
    "ConvertedLayer",
    "DistillationLoss",
    "GradientScore",
    "InputStatistics",
    "LayerAllocation",
    "LayerReport",
    "LayerSensitivity",
    "LayerwiseSchedule",
    "MaskRefresher",
    "MaskedModel",
    "NMPattern",
    "PackedNM",
    "PackedSizeReport",
    "Permutation",
    "PermutationReport",
    "ProgressiveSchedule",
    "PruneReport",
    "QuantisedWeight",
    "Selection",
    "SensitivityReport",
    "SkippedLayer",
    "SparseGPTResult",
    "SparseLinear",
    "SparseLinearInt8",
    "SparseTrainingLinear",
    "UnpackedWarning",
    "allocate",
    "attach_masks",
    "attention_and_ends",
    "block_mask",
    "check_nm",
    "collect_inputs",
    "compensate_scale",
    "densify",
    "layer_sensitivity",
    "load_packed",
    "magnitude",
    "magnitude_masks",
    "nm_linear",
    "nm_mask",
    "packed_size_report",
    "permute_channels",
    "permute_model",
    "prune",
    "prune_and_pack",
    "prune_and_pack_both",
    "quantise_weight",
    "save_packed",
    "selected_layers",
    "sparsegpt",
    "sparsify",
    "tuning",
    "wanda",
    "warmup_cosine",
]
