"""Importance of the words of a text by what the whole model makes of them; a file a method.

`attribute` gives the scores of a data set's items by a method's name.
"""

from typing import TYPE_CHECKING

from fastattnerase.lazy import public_names

if TYPE_CHECKING:
    from fastattnerase.saliency.public import *  # noqa: F403
else:
    __getattr__, __dir__ = public_names(__name__)
