"""2:4 and N:M sparsity: scores, masks, permutation, training, and layers that run it.

Typical use: ``prune`` a model (or train it with ``attach_masks`` and ``MaskRefresher``), then ``sparsify``
it, which replaces its Linear layers by :class:`SparseLinear`.
"""

from sparse_core.common.surgery import Selection
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.conversion import ConversionReport, ConvertedLayer, SkippedLayer, densify, sparsify
from sparse_core.nm.layers.files import load_packed, save_packed
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.linear import UnpackedWarning, nm_linear, tuning
from sparse_core.nm.masks import block_mask, check_nm, nm_mask
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.quantisation import QuantisedWeight, quantise_weight
from sparse_core.nm.packing.two_four import Compressed24, prune_and_pack, prune_and_pack_both
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.permutation import Permutation, permute_channels
from sparse_core.nm.pruning import prune
from sparse_core.nm.pruning.allocation import Allocation, LayerAllocation, allocate
from sparse_core.nm.pruning.api import LayerReport, PruneReport
from sparse_core.nm.pruning.calibration import InputStatistics, collect_inputs
from sparse_core.nm.pruning.scores import GradientScore, magnitude, wanda
from sparse_core.nm.pruning.selection import magnitude_masks, selected_layers
from sparse_core.nm.pruning.single_weight import compensate_scale
from sparse_core.nm.pruning.sparsegpt import CalibrationWarning, SparseGPTResult, sparsegpt
from sparse_core.nm.training import (
    DistillationLoss,
    MaskedModel,
    MaskRefresher,
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
    "MaskRefresher",
    "MaskedModel",
    "NMPattern",
    "PackedNM",
    "Permutation",
    "PruneReport",
    "QuantisedWeight",
    "Selection",
    "SkippedLayer",
    "SparseGPTResult",
    "SparseLinear",
    "SparseLinearInt8",
    "SparseTrainingLinear",
    "UnpackedWarning",
    "allocate",
    "attach_masks",
    "block_mask",
    "check_nm",
    "collect_inputs",
    "compensate_scale",
    "densify",
    "load_packed",
    "magnitude",
    "magnitude_masks",
    "nm_linear",
    "nm_mask",
    "permute_channels",
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
