"""Names that others rely on."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

PUBLIC = {
    "sparse_core.conv": {
        "ConvolutionConfig",
        "CoordinateTable",
        "KernelMap",
        "SparseConv2d",
        "SparseConv3d",
        "SparseInverseConv2d",
        "SparseInverseConv3d",
        "SparseTensor",
        "SubmanifoldConv2d",
        "SubmanifoldConv3d",
        "build_table",
        "convolution_tuning",
        "fixed_convolution",
        "pack_weight",
        "sparse_convolution",
        "strided_map",
        "submanifold_map",
    },
    "sparse_core.formats": {
        "Assembled",
        "BSR",
        "COO",
        "CSR",
        "Choice",
        "CompactCSR",
        "Description",
        "ELL",
        "HYB",
        "NM",
        "RowLengths",
        "SlicedELL",
        "SparseMatrix",
        "assemble_csr",
        "choose_format",
        "index_dtype_for",
        "load_matrix",
        "save_matrix",
    },
    "sparse_core.formats.generators": {
        "banded",
        "block_sparse",
        "convection_diffusion",
        "diagonal",
        "generate",
        "names",
        "poisson_2d",
        "poisson_3d",
        "power_law",
        "random_uniform",
        "stencil",
        "stencil_27",
    },
    "sparse_core.linalg": {
        "AlgebraicMultigrid",
        "ApproximateInverse",
        "ApproximateSolver",
        "BatchedCholesky",
        "BatchedLU",
        "CholeskyFactors",
        "FactorisationReport",
        "GaussSeidel",
        "ICFactors",
        "ILUFactors",
        "Jacobi",
        "LUFactors",
        "MulticolourOrder",
        "MultigridLevel",
        "Preconditioner",
        "SolveResult",
        "algebraic_multigrid",
        "batched_cholesky",
        "batched_lu",
        "bicgstab",
        "cg",
        "cholesky",
        "gauss_seidel",
        "gmres",
        "ic0",
        "ilu0",
        "iluk",
        "jacobi",
        "lu",
        "multicolour_order",
        "save_convergence_picture",
        "sddmm",
        "solve",
        "sparse_approximate_inverse",
        "spgemm",
        "spmm",
        "spmv",
        "triangular_solve",
        "tridiagonal_solve",
    },
    "sparse_core.nm": {
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
        "NM",
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
    },
    "sparse_core.attention": {
        "AttentionImpl",
        "AttentionPruner",
        "AttentionResult",
        "BlockImportance",
        "BlockPattern",
        "DensitySchedule",
        "DynamicBlocks",
        "FeedForward",
        "LayerPruning",
        "LearnedBlocks",
        "LinearDensity",
        "PatternCache",
        "PatternDescription",
        "PrunableAttention",
        "PruningReport",
        "Selector",
        "SparseAttention",
        "SparseTransformer",
        "SparseTransformerLayer",
        "TopKBlocks",
        "bigbird",
        "block_importance",
        "dynamic_blocks",
        "from_block_mask",
        "from_distance",
        "from_token_mask",
        "full",
        "gathered_attention",
        "global_tokens",
        "local_window",
        "patterns_from_importance",
        "random_blocks",
        "sparse_attention",
        "strided",
        "top_k_blocks",
    },
    "sparse_core.errors": {
        "CapacityWarning",
        "ConvergenceError",
        "FactorisationWarning",
        "ImplementationError",
        "SparseError",
    },
    "perception": {"Boxes3D", "Detections", "Detector", "PointCloud"},
    "perception.boxes": {"rotated_iou_3d", "rotated_iou_bev"},
    "perception.nms": {"rotated_nms"},
    "perception.evaluate.kitti": {"evaluate_kitti"},
    "perception.io": {"load_point_cloud"},
}


@pytest.mark.parametrize("module", PUBLIC)
def test_promised_names_exist(module: str) -> None:
    found = importlib.import_module(module)
    assert {name for name in PUBLIC[module] if not hasattr(found, name)} == set()


@pytest.mark.parametrize(
    "module",
    [
        "sparse_core.attention",
        "sparse_core.conv",
        "sparse_core.formats",
        "sparse_core.formats.generators",
        "sparse_core.linalg",
        "sparse_core.nm",
        "perception",
    ],
)
def test_surface_of_a_package_is_exactly_what_is_promised(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


def test_every_all_is_complete_and_resolves(source_files: dict[str, Path]) -> None:
    listed = 0
    for name, path in source_files.items():
        if not re.search(r"^__all__", path.read_text(), flags=re.MULTILINE):
            continue
        module = importlib.import_module(name)
        listed += 1
        assert len(set(module.__all__)) == len(module.__all__), name
        assert [entry for entry in module.__all__ if not hasattr(module, entry)] == [], name
        if path.name == "__init__.py":
            defined = {
                key
                for key, value in vars(module).items()
                if not key.startswith("_")
                and (inspect.isclass(value) or inspect.isfunction(value))
                and value.__module__.partition(".")[0] == name.partition(".")[0]
            }
            assert defined - set(module.__all__) == set(), f"{name} shows names that __all__ leaves out"
    assert listed >= 4


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("perception:Detector.from_pretrained", ["name_or_path", "device"]),
        ("perception:Detector.__call__", ["self", "cloud"]),
        ("perception.nms:rotated_nms", ["boxes", "scores", "iou_threshold"]),
        ("sparse_core.attention:sparse_attention", ["q", "k", "v", "pattern"]),
        ("sparse_core.attention:gathered_attention", ["q", "k", "v", "index"]),
        ("sparse_core.attention:local_window", ["length", "window", "block_size"]),
        ("sparse_core.attention:strided", ["length", "stride", "block_size"]),
        ("sparse_core.attention:global_tokens", ["length", "count", "block_size"]),
        ("sparse_core.attention:random_blocks", ["length", "density", "block_size"]),
        ("sparse_core.attention:bigbird", ["length", "window", "count", "random", "block_size"]),
        ("sparse_core.attention:from_token_mask", ["mask", "block_size"]),
        ("sparse_core.attention:top_k_blocks", ["q", "k", "keep"]),
        ("sparse_core.attention:dynamic_blocks", ["q", "k"]),
        ("sparse_core.attention:SparseAttention", ["dim", "heads", "pattern"]),
        ("sparse_core.conv:build_table", ["coordinates", "spatial_shape"]),
        ("sparse_core.conv:sparse_convolution", ["features", "weight", "kernel_map"]),
        ("sparse_core.formats:COO", ["row", "col", "values", "shape"]),
        ("sparse_core.formats:CSR", ["row_ptr", "col", "values", "shape"]),
        ("sparse_core.formats:ELL", ["col", "values", "lengths", "shape"]),
        ("sparse_core.formats:SlicedELL", ["slice_ptr", "col", "values", "lengths", "shape"]),
        ("sparse_core.formats:HYB", ["ell", "coo", "shape"]),
        ("sparse_core.formats:BSR", ["row_ptr", "col", "values", "shape"]),
        ("sparse_core.formats:NM", ["values", "index", "shape"]),
        ("sparse_core.formats:CompactCSR", ["row_ptr", "delta", "values", "shape"]),
        ("sparse_core.formats:SparseMatrix.with_values", ["self", "values"]),
        ("sparse_core.formats:assemble_csr", ["row", "col", "values", "shape"]),
        ("sparse_core.formats:choose_format", ["matrix"]),
        ("sparse_core.formats:load_matrix", ["path"]),
        ("sparse_core.formats:save_matrix", ["matrix", "path"]),
        ("sparse_core.nm:nm_mask", ["weight", "n", "m", "score"]),
        ("sparse_core.nm:permute_channels", ["weight", "n", "m"]),
        ("sparse_core.nm:SparseLinear.from_dense", ["linear", "pattern"]),
        ("sparse_core.nm:nm_linear", ["x", "weight", "bias"]),
        ("sparse_core.nm:sparsify", ["model", "pattern"]),
        ("sparse_core.linalg:spmv", ["matrix", "x"]),
        ("sparse_core.linalg:spmm", ["matrix", "dense"]),
        ("sparse_core.linalg:sddmm", ["pattern", "a", "b"]),
        ("sparse_core.linalg:spgemm", ["a", "b"]),
        ("sparse_core.linalg:triangular_solve", ["matrix", "b"]),
        ("sparse_core.linalg:tridiagonal_solve", ["lower", "diagonal", "upper", "b"]),
        ("sparse_core.linalg:ilu0", ["matrix"]),
        ("sparse_core.linalg:iluk", ["matrix", "level"]),
        ("sparse_core.linalg:ic0", ["matrix"]),
        ("sparse_core.linalg:lu", ["matrix"]),
        ("sparse_core.linalg:cholesky", ["matrix"]),
        ("sparse_core.linalg:cg", ["matrix", "b", "x0"]),
        ("sparse_core.linalg:bicgstab", ["matrix", "b", "x0"]),
        ("sparse_core.linalg:gmres", ["matrix", "b", "x0"]),
        ("sparse_core.linalg:solve", ["matrix", "b"]),
    ],
)
def test_positional_parameters(name: str, parameters: list[str]) -> None:
    signature = inspect.signature(pkgutil.resolve_name(name))
    kinds = signature.parameters.values()
    assert [entry.name for entry in kinds if entry.kind is entry.POSITIONAL_OR_KEYWORD] == parameters


@pytest.mark.parametrize("package", ["sparse_core", "perception"])
def test_packages_are_typed(repository: Path, package: str) -> None:
    assert (repository / package / "py.typed").is_file()
