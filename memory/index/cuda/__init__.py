"""Vector search on a GPU: cells around random rows, packed codes and exact scores; plain torch on a CPU."""

from memory.index.cuda.index import CudaIndex
from memory.index.cuda.rerank import rerank_top
from memory.index.cuda.scan import scan_top

__all__ = ["CudaIndex", "rerank_top", "scan_top"]
