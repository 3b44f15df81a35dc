"""When an operator's function may be called by itself, without torch's dispatcher.

The dispatcher takes a fifth of a tiny call. It is needed where something listens to operators:
compilation and export, modes such as fake tensors, function transforms, tracing, the profiler.
"""

from __future__ import annotations

from typing import Any

import torch

_C: Any = torch._C  # no public name tells all of this, or quickly


def nobody_listens() -> bool:
    """Say whether torch would only pass plain tensors on to an operator's function."""
    # First, since a compiler follows no further.
    return not (
        torch.compiler.is_compiling()
        or _C._len_torch_dispatch_stack()
        or _C._len_torch_function_stack()
        or _C._functorch.peek_interpreter_stack() is not None
        or _C._get_tracing_state() is not None
        or _C._autograd._profiler_enabled()
    )
