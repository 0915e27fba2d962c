"""Compression: n:m pruning, then few bits per kept value, in files close to the theoretical size.

``compress_model`` packs the weights of a model, ``save_compressed`` and ``load_compressed`` store them, and
``compressed_layers`` runs Linear and Conv2d layers from the packed form.
"""

from sparse_core.compression.calibrate import CalibratedLayer, CalibrationReport, prune_in_one_pass
from sparse_core.compression.model import compress_model
from sparse_core.nm.layers.assembly import compressed_layers
from sparse_core.nm.layers.compressed_layers import CompressedConv2d, CompressedLinear
from sparse_core.nm.packing.codebook import Codebook, fit_codebook
from sparse_core.nm.packing.coding import Coding
from sparse_core.nm.packing.compress import compress
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.files import CompressedFile, load_compressed, save_compressed
from sparse_core.nm.packing.matrix_view import MatrixView
from sparse_core.nm.packing.model import CompressedModel
from sparse_core.nm.packing.quantisation import GroupQuantised, quantise_groups
from sparse_core.nm.packing.report import CompressionReport, LayerCompression

__all__ = [
    "CalibratedLayer",
    "CalibrationReport",
    "Codebook",
    "Coding",
    "CompressedConv2d",
    "CompressedFile",
    "CompressedLinear",
    "CompressedModel",
    "CompressedWeight",
    "CompressionReport",
    "GroupQuantised",
    "LayerCompression",
    "MatrixView",
    "compress",
    "compress_model",
    "compressed_layers",
    "fit_codebook",
    "load_compressed",
    "prune_in_one_pass",
    "quantise_groups",
    "save_compressed",
]
