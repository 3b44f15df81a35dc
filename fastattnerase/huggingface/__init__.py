"""Sequence classifiers of Hugging Face's transformers: erasure in the last layer, saliency.

transformers is imported when a model is loaded, not with this package.
"""

from typing import TYPE_CHECKING

from fastattnerase.lazy import public_names

if TYPE_CHECKING:
    from fastattnerase.huggingface.public import *  # noqa: F403
else:
    __getattr__, __dir__ = public_names(__name__)
