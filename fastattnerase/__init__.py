"""Does attention explain this decision? Erasure of every prefix of every ranking in one launch."""

from typing import TYPE_CHECKING

# The function hides the package of its name, which would be found before `__getattr__` is asked.
from fastattnerase.backends import backends as backends
from fastattnerase.lazy import public_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fastattnerase.public import *  # noqa: F403
else:
    __getattr__, __dir__ = public_names(__name__)
