"""What a merge of models on disk did, or would do."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_core.table import Report, Table


@dataclass(frozen=True)
class MergeReport(Report):
    """What was merged, or would be.

    Attributes:
        out: file or folder written.
        method: name of the way to merge.
        base: path of the base, if any.
        models: paths of the models merged into it.
        tensors: how many.
        parameters: numbers that were merged.
        copied: tensors taken over from the base because they hold whole numbers.
        nbytes: of the tensors written.
        files: names of the files with weights.
        layers: that gradients run over.
        notes: what the recipe asks for and does not happen.
        written: False for a dry run.
    """

    out: str
    method: str
    base: str | None
    models: list[str]
    tensors: int
    parameters: int
    copied: int
    nbytes: int
    files: list[str]
    layers: int
    notes: list[str]
    written: bool

    def tables(self) -> list[Table | str]:
        """What was merged, line by line."""
        rows = [
            ["method", self.method],
            ["base", self.base or "-"],
            *(["model", path] for path in self.models),
            ["tensors", f"{self.tensors:,} ({self.copied:,} of whole numbers copied)"],
            ["parameters", f"{self.parameters:,}"],
            [
                "out" if self.written else "would write",
                f"{self.out}, {self.nbytes:,} bytes, {len(self.files)} file(s)",
            ],
            *(["note", note] for note in self.notes),
        ]
        return [Table(("merge", ""), rows)]
