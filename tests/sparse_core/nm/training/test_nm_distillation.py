"""The distillation loss against torch's divergence and hand formulas; hooks that go away."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm.pruning.selection import magnitude_masks
from sparse_core.nm.training.distillation import DistillationLoss, soft_label_loss
from sparse_core.nm.training.estimators import attach_masks


class Classifier(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        logits: Tensor = self.head(self.body(x * scale))
        return logits


def teacher_and_student(width: int = 8) -> tuple[Classifier, Classifier]:
    torch.manual_seed(0)
    return Classifier(), Classifier(width)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(10, 6, generator=generator), torch.randint(3, (10,), generator=generator)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("shape", [(10, 3), (2, 5, 7)])
def test_soft_labels_are_torchs_divergence(temperature: float, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(2)
    student = torch.randn(shape, generator=generator, dtype=torch.float64)
    teacher = torch.randn(shape, generator=generator, dtype=torch.float64)
    p = torch.softmax(teacher / temperature, -1).reshape(-1, shape[-1])
    q = torch.softmax(student / temperature, -1).reshape(-1, shape[-1])
    wanted = nn.functional.kl_div(q.log(), p, reduction="batchmean") * temperature**2
    found = soft_label_loss(student, teacher, temperature=temperature)
    torch.testing.assert_close(found, wanted)
    by_hand = sum(
        a * (math.log(a) - math.log(b))
        for row_p, row_q in zip(p.tolist(), q.tolist(), strict=True)
        for a, b in zip(row_p, row_q, strict=True)
    )
    assert float(found) == pytest.approx(by_hand / len(p) * temperature**2)


def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    teacher, student = teacher_and_student()
    x, labels = batch()
    student.eval()
    with DistillationLoss(
        teacher,
        student,
        temperature=3.0,
        alpha=0.3,
        features={"body": "body.1", "head": "head"},
        feature_weight=0.7,
    ) as distil:
        logits = student(x)
        hard = nn.functional.cross_entropy(logits, labels)
        loss = distil(logits, x, hard)
        terms = distil.terms
    with torch.no_grad():
        hidden, target = student.body(x), teacher.body[:2](x)
        first = (hidden - target).square().sum() / target.square().sum()
        target_logits = teacher.head(target)
        second = (logits - target_logits).square().sum() / target_logits.square().sum()
    torch.testing.assert_close(terms["features"], (first + second) / 2)
    torch.testing.assert_close(
        terms["soft"], soft_label_loss(logits, target_logits, temperature=3.0).detach()
    )
    wanted = 0.7 * float(hard.detach()) + 0.3 * float(terms["soft"]) + 0.7 * float(terms["features"])
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-6)


def test_gradients_reach_the_student_only() -> None:
    teacher, student = teacher_and_student()
    x, labels = batch()
    teacher.train()
    distil = DistillationLoss(teacher, student, features=["body"])
    assert not teacher.training
    logits = student(x)
    distil(logits, x, nn.functional.cross_entropy(logits, labels)).backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(parameter.grad is not None for parameter in student.parameters())
    distil.close()


def test_inputs_may_be_a_tensor_a_tuple_or_a_dictionary() -> None:
    teacher, student = teacher_and_student()
    student.eval()
    x, _ = batch()
    distil = DistillationLoss(teacher, alpha=1.0)
    logits = student(x, scale=2.0)
    one = distil(logits, {"x": x, "scale": 2.0}, torch.zeros(()))
    assert torch.equal(one, distil(logits, (x, 2.0), torch.zeros(())))
    assert torch.equal(one, distil(logits, 2.0 * x, torch.zeros(())))
    assert not torch.equal(one, distil(logits, x, torch.zeros(())))


def test_hooks_are_removed() -> None:
    teacher, student = teacher_and_student()
    distil = DistillationLoss(teacher, student, features=["body", "head"])
    watched = [*teacher.modules(), *student.modules()]
    assert sum(len(module._forward_hooks) for module in watched) == 4
    distil.close()
    distil.close()
    assert sum(len(module._forward_hooks) for module in watched) == 0
    x, _ = batch()
    with pytest.raises(RuntimeError, match="closed"):
        distil(student(x), x, torch.zeros(()))
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError), DistillationLoss(teacher, student, features=["body"]):
        raise error
    assert sum(len(module._forward_hooks) for module in watched) == 0


def test_a_masked_student_is_watched_by_its_plain_names() -> None:
    teacher, _ = teacher_and_student()
    student = copy.deepcopy(teacher)
    attach_masks(student, magnitude_masks(student, select="head"))
    x, labels = batch()
    with DistillationLoss(teacher, student, features=["head"]) as distil:
        logits = student(x)
        distil(logits, x, nn.functional.cross_entropy(logits, labels)).backward()
        assert float(distil.terms["features"]) > 0
    assert student.head.parametrizations.weight.original.grad is not None  # type: ignore[union-attr,index]


def test_bad_arguments() -> None:
    teacher, student = teacher_and_student()
    x, _ = batch()
    with pytest.raises(ValueError, match="temperature must be above 0"):
        DistillationLoss(teacher, temperature=0.0)
    with pytest.raises(ValueError, match="alpha must be between"):
        DistillationLoss(teacher, alpha=1.1)
    with pytest.raises(ValueError, match="the same module"):
        DistillationLoss(teacher, teacher)
    with pytest.raises(ValueError, match="features need the student"):
        DistillationLoss(teacher, features=["body"])
    with pytest.raises(ValueError, match="the student has no module 'neck'"):
        DistillationLoss(teacher, student, features={"neck": "body"})
    with pytest.raises(ValueError, match="the teacher has no module 'neck'"):
        DistillationLoss(teacher, student, features={"body": "neck"})
    assert sum(len(module._forward_hooks) for module in (*teacher.modules(), *student.modules())) == 0
    with pytest.raises(ValueError, match=r"logits have shape \(10, 2\), the teacher's \(10, 3\)"):
        DistillationLoss(teacher)(torch.zeros(10, 2), x, torch.zeros(()))
    with DistillationLoss(teacher, student, features=["body"]) as distil:
        logits = student(x)
        distil(logits, x, torch.zeros(()))
        with pytest.raises(ValueError, match="run the student first"):
            distil(logits, x, torch.zeros(()))
    narrow = Classifier(4)
    with DistillationLoss(teacher, narrow, features=["body"]) as distil:
        logits = narrow(x)
        with pytest.raises(ValueError, match=r"'body' and 'body' have shapes \(10, 4\) and \(10, 8\)"):
            distil(logits, x, torch.zeros(()))


def test_a_teacher_may_return_an_object_with_logits() -> None:
    """As models of transformers do."""
    teacher, student = teacher_and_student()

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = teacher

        def forward(self, x: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=self.inner(x))

    x, _ = batch()
    hard = torch.tensor(1.0)
    logits = student(x)
    expected = DistillationLoss(teacher)(logits, x, hard)
    assert torch.equal(DistillationLoss(Wrapped())(logits, {"x": x}, hard), expected)
