"""Compiles every Triton kernel for a compute capability, without a GPU; prints what each uses.

    python compile_kernels.py CONFIGURATION CAPABILITY     # float32 90; a JSON line a kernel

Run in a process of its own without TRITON_INTERPRET: launches of a real sweep are recorded instead
of run, so that the kernels are compiled with the very types and constants the backend gives them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from sweep_problems import K, outputs, problem
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from fastattnerase.backends.triton import BACKEND
from fastattnerase.problem import PooledProblem

TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
}
TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
CONFIGURATIONS = {
    "float32": {"features": 256, "classes": 2, "dtype": torch.float32, "scores": True},
    "bfloat16": {"features": 512, "classes": 3, "dtype": torch.bfloat16, "scores": False},
    "wide": {"features": 100, "classes": 20, "dtype": torch.float32, "scores": True},
}


def record(name: str) -> dict[str, tuple]:
    """The distinct launches of a sweep and of pooled prefixes."""
    launches: dict[str, tuple] = {}

    def run(
        self: JITFunction, *args: object, grid: object, warmup: bool, **options: object
    ) -> None:
        named = dict(zip([p.name for p in self.params], args, strict=False)) | options
        signature, constants, attributes = {}, {}, {}
        for i, parameter in enumerate(self.params):
            value = named.pop(parameter.name)
            if parameter.is_constexpr or value is None:
                signature[parameter.name] = "constexpr"
                constants[(i,)] = value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name] = "*" + TYPES[value.dtype]
                if not parameter.do_not_specialize:
                    attributes[(i,)] = [["tt.divisibility", 16]]
            else:
                signature[parameter.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
        key = f"{self.fn.__name__} {signature} {constants} {named}"
        launches[key] = (self, signature, constants, attributes, named)

    JITFunction.run = run
    every = (*K.__members__.values(),)
    given = problem([5, 700], rankings=every, **CONFIGURATIONS[name])
    BACKEND.sweep(given, outputs(given))
    pooled = PooledProblem(
        given.values, given.offsets, given.attention, given.is_scores, given.orders[0], False, 0
    )
    BACKEND.pooled_prefixes(pooled, torch.empty(707, 1, given.values.shape[2]))
    return launches


def measure(capability: int, function, signature, constants, attributes, options) -> dict:
    source = ASTSource(function, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage, code = (
            subprocess.run(
                [TOOL, flag, cubin.name], capture_output=True, text=True, check=True
            ).stdout
            for flag in ("-res-usage", "-sass")
        )
    return {
        "kernel": function.fn.__name__,
        "warps": options["num_warps"],
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "shared": compiled.metadata.shared,
        "spills": len(re.findall(r"\b(?:LDL|STL)\b", code)),
        "wide_loads": len(re.findall(r"\bLDG\.E\S*\.128\b", code)),
    }


if __name__ == "__main__":
    for launch in record(sys.argv[1]).values():
        print(json.dumps(measure(int(sys.argv[2]), *launch)), flush=True)  # noqa: T201
