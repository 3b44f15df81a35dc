"""What the CUDA backend says of machines that it cannot run on."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

cuda = import_module("fastattnerase.backends.cuda")


def test_reasons_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the build to the device, the first that is missing."""
    native = SimpleNamespace(has_cuda=False, cuda_why_not=lambda device: "")
    monkeypatch.setattr(cuda, "_C", native)
    backend = cuda.CudaBackend("cuda", native)
    assert backend.devices == ("cuda",)
    assert backend.unavailable()[0].startswith("fastattnerase was built without CUDA")
    native.has_cuda = True
    monkeypatch.setattr(torch.version, "cuda", None)
    assert backend.unavailable() == ["this torch was built without CUDA"]
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert backend.unavailable() == ["torch finds no CUDA device; check the driver with nvidia-smi"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert backend.unavailable() == []
    native.cuda_why_not = lambda device: f"no kernel image for device {device}"
    assert backend.unavailable() == ["no kernel image for device 3"]
