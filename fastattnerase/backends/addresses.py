"""Tensors as the fields of native parameters (`params.h`); what all native backends share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastattnerase.problem import (
    Outputs,
    PermutedOutputs,
    PermutedProblem,
    PooledProblem,
    Problem,
    ReweighedProblem,
)

_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


def readable(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy where rows overlap or the last stride is not one."""
    *strides, last = tensor.stride()
    width = tensor.shape[-1]
    if last != 1 and width != 1:
        return tensor.contiguous()
    for stride in strides:
        if 0 < stride < width:
            return tensor.contiguous()
    return tensor


def sweep_fields(problem: Problem, values: Tensor, out: Outputs, threads: int) -> dict[str, Any]:
    """The keywords of a native sweep, without scratch memory; `values` are readable."""
    fields = _item_fields(problem, values, threads)
    _add_head(fields, problem)
    fields["R"] = len(problem.rankings)
    fields["rankings"] = list(problem.rankings)
    fields["ranking_args"] = list(problem.ranking_args)
    fields["orders"] = [order.data_ptr() for order in problem.orders]
    fields["keys"] = [keys.data_ptr() for keys in problem.keys]
    fields["keys_dtype"] = [_DTYPES[keys.dtype] for keys in problem.keys]
    for name, tensor in vars(out).items():
        if tensor is not None:
            fields[name] = tensor.data_ptr()
    return fields


def pooled_fields(
    problem: PooledProblem, values: Tensor, pooled: Tensor, threads: int
) -> dict[str, Any]:
    """The keywords of native pooled prefixes, without scratch memory; `values` are readable."""
    return _item_fields(problem, values, threads) | {
        "M": pooled.shape[0],
        "order": problem.order.data_ptr(),
        "point_begin": problem.begin,
        "pooled": pooled.data_ptr(),
    }


def permute_fields(
    problem: PermutedProblem, values: Tensor, out: PermutedOutputs, threads: int
) -> dict[str, Any]:
    """The keywords of natively permuted weights, without scratch memory; `values` are readable."""
    fields = _item_fields(problem.as_problem(), values, threads)
    _add_head(fields, problem)
    fields["P"] = problem.permutations
    for name, tensor in vars(out).items():
        fields[name] = tensor.data_ptr()
    return fields


def reweigh_fields(
    problem: ReweighedProblem, values: Tensor, logits: Tensor, threads: int
) -> dict[str, Any]:
    """The keywords of natively computed logits of other weights; `values` are readable."""
    first = problem.as_problem()
    fields = _item_fields(first, values, threads)
    _add_head(fields, first)
    fields["R"] = problem.weights.shape[0]
    fields["row_stride"] = problem.weights.stride(0)
    fields["logits"] = logits.data_ptr()
    return fields


def _add_head(fields: dict[str, Any], problem: Problem | PermutedProblem) -> None:
    """Add what operators that decide take beside the items."""
    bias = problem.head_bias
    fields["C"] = problem.head_weight.shape[0]
    fields["head_weight"] = problem.head_weight.data_ptr()
    fields["head_bias"] = bias.data_ptr()
    fields["head_bias_stride_b"] = bias.stride(0) if bias.ndim == 2 else 0
    fields["head_bias_dtype"] = _DTYPES[bias.dtype]
    fields["ids"] = problem.ids.data_ptr()
    fields["seed"] = problem.seed & 0xFFFFFFFFFFFFFFFF
    fields["validate"] = int(problem.validate)


def _item_fields(problem: Problem | PooledProblem, values: Tensor, threads: int) -> dict[str, Any]:
    """What both operators take."""
    T, H, D = values.shape
    values_stride_t, values_stride_h, _ = values.stride()
    attention_stride_t, attention_stride_h = problem.attention.stride()
    return {
        "B": problem.offsets.shape[0] - 1,
        "T": T,
        "H": H,
        "D": D,
        "values": values.data_ptr(),
        "values_stride_t": values_stride_t,
        "values_stride_h": values_stride_h,
        "values_dtype": _DTYPES[values.dtype],
        "offsets": problem.offsets.data_ptr(),
        "attention": problem.attention.data_ptr(),
        "attention_stride_t": attention_stride_t,
        "attention_stride_h": attention_stride_h,
        "attention_dtype": _DTYPES[problem.attention.dtype],
        "is_scores": int(problem.is_scores),
        "keep": int(problem.keep),
        "workspace": 0,
        "workspace_bytes": 0,
        "num_threads": threads,
    }
