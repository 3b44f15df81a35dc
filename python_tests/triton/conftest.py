"""The kernels of this folder run in a quicker interpreter."""

from __future__ import annotations

from contract.interpreter import quicken

quicken()
