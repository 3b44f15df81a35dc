"""Contributions of every item: the one read of the values.

Formula: `s_{i,c} = sum_d W_{c,d} v_{i,d}` and `|v_i|`, the norm that near-ties are judged by.

Data layout: values [T, D] with any row stride, head [C, D] contiguous, contributions [T, C] in
float32 (float64 for float64 values), norms [T] float64.

Mapping: a program takes BT items and walks the features in tiles [BT, BD] of 128 bytes a row, so
that eight threads read a row and a warp four of them. Lane d of a tile sums every BD-th feature in
float32; LANES neighbours, a thread's own, are added in float32 too, the rest in float64: that
takes three exchanges between threads for four rows at once, where a row a warp would take five for
each. No float32 sum spans more than 128 features whatever D is, and neither T nor the place of an
item in its batch changes how it rounds. Four classes share one read of a tile; with more classes
the tile is read again from the caches, class groups being spread over the second grid axis.

Memory traffic: T D values once from memory, C D head weights from the caches, T C results.

Assumptions: rows start at multiples of VEC elements and the base at 16 bytes where VEC > 1 (the
adapter copies other layouts once); D and C are compile-time constants, so that loads become 16
bytes wide wherever D allows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import helper

LANES = tl.constexpr(4)  # neighbours whose sums are added in float32


@helper
def _add_lanes(part, BT: tl.constexpr, BD: tl.constexpr):
    """Add up the features of each row [BT], in float64 but for neighbours."""
    if part.dtype == tl.float64:
        return tl.sum(part, axis=1)
    neighbours = tl.sum(tl.reshape(part, [BT, BD // LANES, LANES]), axis=2)  # [BT, BD / LANES]
    return tl.sum(neighbours.to(tl.float64), axis=1)


@helper
def _project_classes(
    VALUES, HEAD, CONTRIBUTIONS, NORMS, rows, inside, row_units, first, C: tl.constexpr,
    D: tl.constexpr, VEC: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, PANEL: tl.constexpr,
    CLASSES: tl.constexpr, WITH_NORM: tl.constexpr,
):  # fmt: skip
    """Project a tile of items onto up to four classes, and write their norms with the first."""
    column = tl.arange(0, BD)
    row = VALUES + (rows * row_units * VEC)[:, None]
    f64: tl.constexpr = tl.float64
    element: tl.constexpr = HEAD.dtype.element_ty
    sum0 = tl.full([BT], 0, f64)
    sum1 = tl.full([BT], 0, f64)
    sum2 = tl.full([BT], 0, f64)
    sum3 = tl.full([BT], 0, f64)
    squares = tl.full([BT], 0, f64)
    for panel in range(0, D, PANEL):
        part0 = tl.full([BT, BD], 0, element)
        part1 = tl.full([BT, BD], 0, element)
        part2 = tl.full([BT, BD], 0, element)
        part3 = tl.full([BT, BD], 0, element)
        square = tl.full([BT, BD], 0, element)
        # Unrolled, so that several loads are in flight.
        for start in tl.range(panel, min(panel + PANEL, D), BD, loop_unroll_factor=4):
            d = start + column
            is_feature = d < D
            v = tl.load(row + d[None, :], mask=inside[:, None] & is_feature[None, :], other=0.0)
            v = v.to(element)  # [BT, BD]
            head = HEAD + first * D + d
            part0 += v * tl.load(head, mask=is_feature, other=0.0)[None, :]
            if CLASSES > 1:
                part1 += (
                    v * tl.load(head + D, mask=is_feature & (first + 1 < C), other=0.0)[None, :]
                )
            if CLASSES > 2:
                part2 += (
                    v * tl.load(head + 2 * D, mask=is_feature & (first + 2 < C), other=0.0)[None, :]
                )
            if CLASSES > 3:
                part3 += (
                    v * tl.load(head + 3 * D, mask=is_feature & (first + 3 < C), other=0.0)[None, :]
                )
            if WITH_NORM:
                square += v * v
        sum0 += _add_lanes(part0, BT, BD)
        if CLASSES > 1:
            sum1 += _add_lanes(part1, BT, BD)
        if CLASSES > 2:
            sum2 += _add_lanes(part2, BT, BD)
        if CLASSES > 3:
            sum3 += _add_lanes(part3, BT, BD)
        if WITH_NORM:
            squares += _add_lanes(square, BT, BD)
    out = CONTRIBUTIONS + rows * C + first
    real: tl.constexpr = CONTRIBUTIONS.dtype.element_ty
    tl.store(out, sum0.to(real), mask=inside)
    if CLASSES > 1:
        tl.store(out + 1, sum1.to(real), mask=inside & (first + 1 < C))
    if CLASSES > 2:
        tl.store(out + 2, sum2.to(real), mask=inside & (first + 2 < C))
    if CLASSES > 3:
        tl.store(out + 3, sum3.to(real), mask=inside & (first + 3 < C))
    if WITH_NORM:
        # Squares leave float32 for values beyond 1e±10: such items are read again, in float64.
        extreme = inside & ((squares > 1e-20) & (squares < 1e30)) == 0
        if tl.sum(extreme.to(tl.int32), axis=0) > 0:
            exact = tl.full([BT], 0, f64)
            for start in range(0, D, BD):
                d = start + column
                some = inside[:, None] & (d < D)[None, :]
                v = tl.load(row + d[None, :], mask=some, other=0.0).to(element).to(f64)
                exact += tl.sum(v * v, axis=1)
            squares = tl.where(extreme, exact, squares)
        tl.store(NORMS + rows, tl.sqrt(squares), mask=inside)


@triton.jit(do_not_specialize=["T", "row_units"])
def project_kernel(
    VALUES, HEAD, CONTRIBUTIONS, NORMS, T, row_units, C: tl.constexpr, D: tl.constexpr,
    VEC: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, PANEL: tl.constexpr,
    CLASSES: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    inside = rows < T
    group = tl.program_id(1)
    if group == 0:
        _project_classes(
            VALUES, HEAD, CONTRIBUTIONS, NORMS, rows, inside, row_units, 0, C, D, VEC, BT, BD,
            PANEL, CLASSES, True,
        )  # fmt: skip
        group += tl.num_programs(1)
    while group * CLASSES < C:
        _project_classes(
            VALUES, HEAD, CONTRIBUTIONS, NORMS, rows, inside, row_units, group * CLASSES, C, D, VEC,
            BT, BD, PANEL, CLASSES, False,
        )  # fmt: skip
        group += tl.num_programs(1)


def vector_width(num_features: int, item_bytes: int) -> int:
    """Count the elements, a power of two, of a 16-byte load that never straddles a row."""
    width = 16 // item_bytes
    while num_features % width:
        width //= 2
    return width


def project(
    values: torch.Tensor,
    head_weight: torch.Tensor,
    contributions: torch.Tensor,
    norms: torch.Tensor,
) -> None:
    """Fill contributions [T, C] and norms [T] from values [T, D] and head_weight [C, D]."""
    num_items, num_features = values.shape
    num_classes = head_weight.shape[0]
    if num_items == 0:
        return
    width = vector_width(num_features, values.element_size())
    tile_features = 128 // values.element_size()
    tile_items = 2048 // tile_features
    classes = min(4, triton.next_power_of_2(num_classes))
    groups = triton.cdiv(num_classes, classes)
    project_kernel[(triton.cdiv(num_items, tile_items), min(groups, 16) if groups > 4 else 1)](
        values, head_weight, contributions, norms, num_items, values.stride(0) // width,
        C=num_classes, D=num_features, VEC=width, BT=tile_items, BD=tile_features,
        PANEL=32 * tile_features, CLASSES=classes, num_warps=4,
    )  # fmt: skip
