"""Layer-wise relevance propagation: what an output is made of, layer by layer down to the words."""

from fastattnerase.saliency.lrp.method import METHOD

__all__ = ["METHOD"]
