"""Export detectors to ONNX, ``torch.export`` and AOTInductor."""

from perception.export.formats import FORMATS, SUFFIXES, export_network

__all__ = ["FORMATS", "SUFFIXES", "export_network"]
