from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import scipy.sparse
import torch
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, Description, SlicedELL


def skewed() -> Tensor:
    dense = torch.zeros(8, 10)
    for row, length in enumerate([0, 1, 1, 2, 2, 2, 3, 10]):
        dense[row, :length] = 1
    return dense


def test_numbers_of_a_description() -> None:
    found = CSR.from_dense(skewed()).describe()
    assert (found.format, found.shape, found.nnz) == ("CSR", (8, 10), 21)
    assert found.sparsity == pytest.approx(1 - 21 / 80)
    rows = found.row_lengths
    assert (rows.shortest, rows.lower_quartile, rows.median, rows.upper_quartile, rows.longest) == (
        0,
        1,
        2,
        2,
        10,
    )
    assert rows.empty == 1
    assert rows.mean == pytest.approx(21 / 8)
    lengths = torch.tensor([0.0, 1, 1, 2, 2, 2, 3, 10])
    differences = (lengths[:, None] - lengths).abs().mean()
    assert rows.gini == pytest.approx(float(differences / (2 * lengths.mean())))
    offsets = scipy.sparse.dia_array(skewed().numpy()).offsets
    assert found.diagonals == len(offsets)
    assert found.dtype == "float32"
    assert found.device == "cpu"


def test_bytes_are_those_of_the_real_conversions(draw_dense: Callable[..., Tensor]) -> None:
    csr = CSR.from_dense(draw_dense(50, 64, 0.1, torch.float32))
    found = csr.describe()
    assert found.format_nbytes["dense"] == 50 * 64 * 4
    for target in (COO, CSR, ELL, SlicedELL, HYB, BSR, CompactCSR):
        assert found.format_nbytes[target.__name__] == csr.to(target).nbytes
    assert found.format_nbytes["NM"] is None
    assert "of 2:4" in found.misfits["NM"]
    pruned = NM.from_dense(torch.eye(12)).to(CSR)
    assert pruned.describe().format_nbytes["NM"] == pruned.to(NM).nbytes
    assert pruned.to(torch.complex64).describe().format_nbytes["CompactCSR"] is None


def test_text_and_json(draw_dense: Callable[..., Tensor]) -> None:
    matrix = HYB.from_dense(draw_dense(20, 30, 0.2, torch.float64))
    found = matrix.describe()
    text = str(found)
    assert text.startswith("HYB 20 x 30, float64 on cpu")
    for part in (
        "row lengths",
        "diagonals",
        "SlicedELL",
        "does not fit",
        "<- this matrix",
        f"choice       {found.choice}",
    ):
        assert part in text
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["shape"] == [20, 30]
    assert plain["row_lengths"]["longest"] == found.row_lengths.longest
    assert plain["format_nbytes"]["HYB"] == matrix.nbytes


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 3)])
def test_empty_matrices(shape: tuple[int, int]) -> None:
    for target in (COO, CSR, ELL, SlicedELL, HYB, BSR, NM, CompactCSR):
        found = target.from_dense(torch.zeros(shape)).describe()
        assert isinstance(found, Description)
        assert found.row_lengths.gini == 0.0
        assert found.row_lengths.empty == (shape[0] if target is not NM else 0 if all(shape) else shape[0])
        assert str(found)


def test_gradients_are_not_recorded() -> None:
    values = torch.ones(21, requires_grad=True)
    matrix = CSR.from_dense(skewed()).with_values(values)
    assert matrix.describe().nnz == 21
