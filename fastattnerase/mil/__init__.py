"""Attention-based multiple-instance learning: bags of patches, trained pools, patch flipping.

Slides of computational pathology are bags of patches; sentences of a document, frames of a
recording or nodes of a graph are bags as well.
"""

from __future__ import annotations

from fastattnerase.lazy import public_names

__getattr__, __dir__ = public_names(__name__)
