"""Triton kernels of the erasure engine; installed as `fastattnerase.kernels.triton`."""
