"""Distillation: a sparse student learns soft labels and features from its dense teacher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sparse_core.nm.forward_pass import call_model


class DistillationLoss:
    """Loss of a student against a frozen teacher.

    ``(1 - alpha) * hard + alpha * T² * KL(teacher ‖ student)`` with both softened by the temperature T
    (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015), plus
    ``feature_weight`` times the mean over feature pairs of ``|student - teacher|² / |teacher|²``.

    As a context manager it removes its hooks at the end, as :meth:`close` does.

    Args:
        teacher: put into evaluation mode and run without gradient; its parameters do not change.
        student: needed only with ``features``.
        temperature: T, above 0.
        alpha: weight of the soft labels, 0 to 1.
        features: names of modules whose outputs are compared: student's to teacher's, or common names.
        feature_weight: weight of the features' term.

    Attributes:
        terms: ``hard``, ``soft`` and ``features`` of the last call before weighting, detached.

    Raises:
        ValueError: a number out of range, an unknown module, or features without a student.
    """

    def __init__(
        self,
        teacher: nn.Module,
        student: nn.Module | None = None,
        *,
        temperature: float = 2.0,
        alpha: float = 0.5,
        features: Mapping[str, str] | Iterable[str] = (),
        feature_weight: float = 1.0,
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
        if student is teacher:
            raise ValueError("teacher and student are the same module: copy.deepcopy(model) makes a teacher")
        pairs = dict(features) if isinstance(features, Mapping) else {name: name for name in features}
        if pairs and student is None:
            raise ValueError("features need the student: DistillationLoss(teacher, student, features=…)")
        self.teacher = teacher.eval()
        self.temperature = temperature
        self.alpha = alpha
        self.feature_weight = feature_weight
        self.terms: dict[str, Tensor] = {}
        self._pairs = pairs
        self._student_outputs: dict[str, Any] = {}
        self._teacher_outputs: dict[str, Any] = {}
        watched = [(teacher, name, self._teacher_outputs, "teacher") for name in pairs.values()]
        if student is not None:
            watched += [(student, name, self._student_outputs, "student") for name in pairs]
        modules = [(_module(model, name, role), name, store) for model, name, store, role in watched]
        self._hooks = [_watch(module, name, store) for module, name, store in modules]

    def __call__(self, student_logits: Tensor, inputs: Any, hard_loss: Tensor) -> Tensor:
        """Return the scalar loss of one batch, with gradient to the student.

        Args:
            student_logits: (..., classes) from the student's last forward pass.
            inputs: batch for the teacher: a tensor, a tuple or list of arguments, or a dict of them.
            hard_loss: () loss against the labels.
        """
        if self._pairs and not self._hooks:
            raise RuntimeError("this DistillationLoss is closed: create a new one")
        self.teacher.eval()
        with torch.no_grad():
            output = call_model(self.teacher, inputs)
        # Models of transformers return an object with the logits.
        teacher_logits = getattr(output, "logits", output)
        if not isinstance(teacher_logits, Tensor) or teacher_logits.shape != student_logits.shape:
            found = (
                tuple(teacher_logits.shape) if isinstance(teacher_logits, Tensor) else type(teacher_logits)
            )
            raise ValueError(
                f"the student's logits have shape {tuple(student_logits.shape)}, the teacher's {found}"
            )
        soft = soft_label_loss(student_logits, teacher_logits, temperature=self.temperature)
        feature = self._feature_loss(student_logits)
        self.terms = {"hard": hard_loss.detach(), "soft": soft.detach(), "features": feature.detach()}
        loss = (1 - self.alpha) * hard_loss + self.alpha * soft
        return loss + self.feature_weight * feature if self._pairs else loss

    def __enter__(self) -> DistillationLoss:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the hooks and discard the features; may be called twice."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._student_outputs.clear()
        self._teacher_outputs.clear()

    def _feature_loss(self, like: Tensor) -> Tensor:
        losses = []
        for student_name, teacher_name in self._pairs.items():
            if student_name not in self._student_outputs:
                raise ValueError(
                    f"the student's {student_name!r} has not run since the last call: run the student first"
                )
            student, teacher = self._student_outputs[student_name], self._teacher_outputs.get(teacher_name)
            losses.append(_relative_error(student, teacher, f"{student_name!r} and {teacher_name!r}"))
        # Graphs of this batch must not outlive it.
        self._student_outputs.clear()
        self._teacher_outputs.clear()
        return torch.stack(losses).mean() if losses else like.new_zeros(())


def soft_label_loss(student_logits: Tensor, teacher_logits: Tensor, *, temperature: float) -> Tensor:
    """Return T² times the mean KL divergence of the softened (..., classes) student from the teacher.

    T² keeps the gradient's size independent of the temperature (Hinton et al. 2015, section 2).
    """
    wide = torch.promote_types(student_logits.dtype, torch.float32)
    student = torch.log_softmax(student_logits.to(wide) / temperature, dim=-1)
    teacher = torch.log_softmax(teacher_logits.to(wide) / temperature, dim=-1)
    divergence = nn.functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1)
    return divergence.mean() * temperature**2


def _relative_error(student: Any, teacher: Any, names: str) -> Tensor:
    """Return the student's squared error relative to the teacher's squares."""
    if not (isinstance(student, Tensor) and isinstance(teacher, Tensor)):
        raise ValueError(f"features {names} must be tensors, got {type(student)} and {type(teacher)}")
    if student.shape != teacher.shape:
        raise ValueError(
            f"features {names} have shapes {tuple(student.shape)} and {tuple(teacher.shape)}:"
            " compare modules of the same width"
        )
    wide = torch.promote_types(student.dtype, torch.float32)
    target = teacher.to(wide)
    scale = target.square().mean().clamp_min(torch.finfo(wide).tiny)
    return (student.to(wide) - target).square().mean() / scale


def _module(model: nn.Module, name: str, role: str) -> nn.Module:
    modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
    if name not in modules:
        raise ValueError(f"the {role} has no module {name!r}; it has {', '.join(filter(None, modules))}")
    return modules[name]


def _watch(module: nn.Module, name: str, outputs: dict[str, Any]) -> RemovableHandle:
    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        outputs[name] = output

    return module.register_forward_hook(keep)
