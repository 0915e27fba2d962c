"""Vector search on a GPU: packed sign codes, hash tables and exact scores; plain torch on a CPU."""

from memory.index.cuda.index import CudaIndex
from memory.index.cuda.rerank import rerank_top
from memory.index.cuda.scan import hamming_top

__all__ = ["CudaIndex", "hamming_top", "rerank_top"]
