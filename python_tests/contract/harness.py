"""Runs a backend on a problem under watch, and judges what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from contract.cases import CAPS, Built, Caps, Case, bands, build, guarded, shrink
from contract.oracle import (
    NEAR_TIE,
    NON_FINITE,
    UNDERFLOW,
    ZERO_MASS,
    Flip,
    Instance,
    Minimal,
    Points,
    divergences,
    first_flip,
)
from contract.tally import REFUSED
from fastattnerase.backends.base import Backend
from fastattnerase.problem import RESULTS, Outputs, Problem, RankingKind, Result

LN2 = float(np.log(2))
# Where a backend has to mark a near-tie, and where it may: float32 contributions move a sum by a
# few hundredths of the tolerance.
MUST, MAY = {True: 0.9, False: 1 - 1e-6}, {True: 1.12, False: 1.01 + 1e-6}


@dataclass(frozen=True)
class Runner:
    """A backend as the tests run it."""

    name: str
    backend: Backend
    device: str = "cpu"

    @property
    def caps(self) -> Caps:
        return CAPS.get(self.name, Caps()) if self.device == "cpu" else Caps()

    def build(self, case: Case) -> Built:
        """The problem of a case, small enough for the backend."""
        return _build(shrink(case, self.caps), self.device)


@cache
def _build(case: Case, device: str) -> Built:
    return build(case, device)


def skip_where_refused(
    runner: Runner, problem: Problem, record_property: Callable[[str, object], None]
) -> None:
    """Skip a test, counted as refused, where the backend takes one attention head only."""
    reasons = runner.backend.unsupported(problem)
    if reasons:
        assert problem.values.shape[1] > 1, f"{runner.name} refuses: {reasons}"
        record_property("not_run", REFUSED)
        pytest.skip("; ".join(reasons))


def wanted(case: Case) -> dict[str, bool]:
    """The optional outputs of a case."""
    groups = {"single": case.single, "minimal": case.minimal}
    curves = {f"curve_{name}" for name in case.curves}
    return {
        line.name: line.name in curves
        if line.name.startswith("curve_")
        else groups.get(line.name.split("_")[0], True)
        for line in RESULTS
        if not line.always
    }


def allocate(problem: Problem, want: dict[str, bool], poison: float) -> Outputs:
    """Outputs full of `poison` (NaN also stands for the least integer), between guard bands."""
    t, h = problem.values.shape[:2]
    b, c, r = problem.offsets.shape[0] - 1, problem.head_weight.shape[0], len(problem.rankings)
    sizes = {"B": b, "C": c, "H": h, "P": t + b, "R": r, "T": t}
    real = torch.float64 if problem.values.dtype == torch.float64 else torch.float32
    dtypes = {"integer": torch.int64, "real": real, "double": torch.float64}

    def room(line: Result) -> Tensor:
        dtype, fill = dtypes[line.dtype], poison
        if dtype == torch.int64:
            fill = torch.iinfo(dtype).min if poison != poison else int(poison)
        shape = [sizes[axis] for axis in line.axes]
        return guarded(torch.full(shape, fill, dtype=dtype, device=problem.values.device))

    return Outputs(**{line.name: room(line) for line in RESULTS if line.always or want[line.name]})


def tensors(record: Problem | Outputs) -> Iterator[tuple[str, Tensor]]:
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor):
            yield field.name, value
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                if isinstance(item, Tensor):
                    yield f"{field.name}[{i}]", item


def same(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, any NaN being equal to any other."""
    if a.is_floating_point():
        whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        bits = a.contiguous().view(whole) == b.contiguous().view(whole)
        return bool((bits | (a.isnan() & b.isnan())).all())
    return torch.equal(a, b)


def assert_same(a: Outputs, b: Outputs, why: str) -> None:
    for (name, x), (_, y) in zip(tensors(a), tensors(b), strict=True):
        assert same(x, y), f"{name} differs {why}: {_where(x, y)}"


def _where(a: Tensor, b: Tensor) -> str:
    differ = ~((a == b) | (a.isnan() & b.isnan())) if a.is_floating_point() else a != b
    at = tuple(differ.nonzero()[0].tolist()) if differ.any() else ()
    return f"{int(differ.sum())} elements, first at {at}: {a[at].tolist()} against {b[at].tolist()}"


def run(runner: Runner, problem: Problem, want: dict[str, bool]) -> Outputs:
    """One run, and a second where the backend is fast: all written, nothing else touched.

    Floats are poisoned with a NaN of a bit pattern that arithmetic does not make.
    """
    before = {name: t.detach().clone() for name, t in tensors(problem)}
    margins = {name: bands(t) for name, t in tensors(problem)}
    results = []
    for poison in (float("nan"), 12345.0)[: 1 if runner.caps.rankings < 10 else 2]:
        out = allocate(problem, want, poison)
        for _, t in tensors(out):
            if poison != poison and t.is_floating_point():
                bits(t).fill_(POISON[t.dtype])
        fences = {name: bands(t) for name, t in tensors(out)}
        runner.backend.sweep(problem, out)
        for name, t in tensors(out):
            assert same(bands(t), fences[name]), f"{runner.name} wrote outside {name}"
            if poison != poison:
                untouched = bits(t) == POISON[t.dtype]
                assert not untouched.any(), f"{runner.name} left {name} unwritten: {untouched}"
        results.append(out)
    for name, t in tensors(problem):
        assert same(t, before[name]), f"{runner.name} changed the input {name}"
        assert same(bands(t), margins[name]), f"{runner.name} wrote around the input {name}"
    if len(results) == 2:
        assert_same(*results, f"between two runs of {runner.name}")
    return results[-1]


POISON = {
    torch.float32: 0x7FC0DEAD,
    torch.float64: 0x7FF80000DEADBEEF,
    torch.int64: torch.iinfo(torch.int64).min,
}


def bits(tensor: Tensor) -> Tensor:
    """The numbers of a tensor as integers of the same width."""
    return tensor.view({4: torch.int32, 8: torch.int64}[tensor.element_size()])


def on_orders(problem: Problem, orders: Tensor) -> Problem:
    """The same problem with its rankings given as the rows of `orders` [R, T]."""
    rows = tuple(row.contiguous() for row in orders)
    return replace(
        problem,
        rankings=(RankingKind.GIVEN_ORDER,) * len(rows),
        ranking_args=tuple(range(len(rows))),
        orders=rows,
    )


def to_cpu(record: Outputs) -> Outputs:
    return Outputs(
        **{
            f.name: v.cpu() if isinstance(v := getattr(record, f.name), Tensor) else v
            for f in fields(record)
        }
    )


def near(out: Outputs) -> Tensor:
    return out.status & NEAR_TIE != 0


def compare_with_reference(out: Outputs, ref: Outputs, exact: bool) -> int:
    """Integers identical on the same orders outside near-ties; the number of near-ties."""
    tied = near(out) | near(ref)
    # A near-tie on the edge of the tolerance may be seen by one side only.
    unlike = (out.status ^ ref.status) & ~NEAR_TIE
    assert not unlike.any(), f"status differs: {_where(out.status, ref.status)}"
    free = torch.zeros_like(tied) if exact else tied
    for name in ("label", "first_flip", "flip_label", "minimal_size", "minimal_flip_label"):
        x, y = getattr(out, name), getattr(ref, name)
        if x is None:
            continue
        assert torch.equal(torch.where(free, -9, x), torch.where(free, -9, y)), (
            f"{name} differs from the reference: {_where(x.where(~free, -9), y.where(~free, -9))}"
        )
    return int(tied.sum())


def subset(problem: Problem, instances: list[int]) -> Problem:
    """The same problem with only some of its instances."""
    offsets = problem.offsets.tolist()
    rows = [i for b in instances for i in range(offsets[b], offsets[b + 1])]
    items = torch.tensor(rows, dtype=torch.int64, device=problem.values.device)
    which = torch.tensor(instances, dtype=torch.int64, device=problem.values.device)
    lengths = problem.offsets.diff()[which]
    bias = problem.head_bias
    return replace(
        problem,
        values=problem.values[items],
        offsets=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
        attention=problem.attention[items],
        head_bias=bias[which] if bias.dim() == 2 else bias,
        ids=problem.ids[which],
        orders=tuple(order[items] for order in problem.orders),
        keys=tuple(key[items] for key in problem.keys),
    )


def take(out: Outputs, problem: Problem, instances: list[int]) -> Outputs:
    """The results of some instances, as if they had been the batch."""
    offsets = problem.offsets.tolist()
    rows = [i for b in instances for i in range(offsets[b], offsets[b + 1])]
    points = [i + b for b in instances for i in range(offsets[b], offsets[b + 1] + 1)]
    index = {
        "B": torch.tensor(instances, dtype=torch.int64),
        "T": torch.tensor(rows, dtype=torch.int64),
        "P": torch.tensor(points, dtype=torch.int64),
    }
    chosen: dict[str, Tensor] = {}
    for line in RESULTS:
        t = getattr(out, line.name)
        if t is not None:
            (axis,) = (i for i, axis in enumerate(line.axes) if axis in index)
            chosen[line.name] = t.index_select(axis, index[line.axes[axis]])
    return Outputs(**chosen)


class Judge:
    """Compares the results of one problem with the oracle, instance by instance."""

    def __init__(self, built: Built, out: Outputs) -> None:
        self.built, self.case, self.problem = built, built.case, built.problem
        self.out = out
        self.offsets = built.problem.offsets.tolist()
        self.narrow = built.problem.values.dtype != torch.float64
        self.eps = 2.0**-24 if self.narrow else 2.0**-53

    def judge(self) -> None:
        for b in self.built.some(self.case.look):
            try:
                self._instance(b)
            except AssertionError as error:
                raise AssertionError(f"instance {b} of {self.case.name}: {error}") from None

    def _instance(self, b: int) -> None:
        out, case, inst = self.out, self.case, self.built.instance(b)
        lo, hi = self.offsets[b], self.offsets[b + 1]
        status = int(out.status[b])
        ignore = NEAR_TIE | (ZERO_MASS if inst.status & NON_FINITE else 0)
        assert status & ~ignore == inst.status & ~ignore, (
            f"status {status}, expected {inst.status} (near-tie apart)"
        )
        tied = bool(status & NEAR_TIE)
        free = tied and not case.exact
        label = int(out.label[b])
        expected = inst.label
        if not inst.n or inst.status & ZERO_MASS:
            expected = -1 if inst.bias_bad else int(np.argmax(inst.bias))
        if inst.status & NON_FINITE:
            expected = -1
        if free and label != expected:
            return  # another label is another problem
        assert label == expected, f"label {label}, expected {expected}"
        slack = self._slack(inst)
        probabilities = out.probabilities[b].double().cpu().numpy()
        if inst.status & NON_FINITE:
            assert np.isnan(probabilities).all(), f"probabilities {probabilities}, expected NaN"
        else:
            z0 = inst.original.logits
            p = divergences(z0, z0[None], label)[0]
            _close("probabilities", probabilities, p, slack + 4 * self.eps)
        if out.logits is not None:
            z0 = inst.original.logits.astype(float)
            expected = np.full_like(z0, np.nan) if inst.status & NON_FINITE else z0
            _close("original logits", out.logits[b], expected, slack + 2 * self.eps * np.abs(z0))
        if out.weights is not None:
            weights = inst.weights.astype(float)  # [n, H]
            weights[np.isnan(weights).any(1)] = np.nan
            _close("weights", out.weights[lo:hi], weights, 1e-14 + 1e-13 * np.abs(weights))
        must, may = np.inf, np.inf
        for r, ranking in enumerate(case.rankings):
            order = out.order[r, lo:hi].cpu().numpy()
            self._order(inst, ranking, order, slack)
            points = inst.prefixes(order, case.keep)
            flip = first_flip(inst, points, case.keep)
            must, may = min(must, flip.must), min(may, flip.may)
            try:
                self._ranking(b, r, inst, points, flip, free, slack)
            except AssertionError as error:
                raise AssertionError(f"ranking {ranking}: {error}") from None
        if case.single:
            points = inst.without_each
            self._single(inst, points, lo, hi, slack)
            if inst.decided and inst.n:
                nearest = float(inst.ratios(points).min(initial=np.inf))
                must, may = min(must, nearest), min(may, nearest)
        if case.minimal and inst.heads == 1:
            minimal = inst.minimal
            self._minimal(b, inst, minimal, lo, hi, free)
            must, may = min(must, minimal.must), min(may, minimal.may)
        compared = bool(case.rankings or case.single or case.minimal)
        if inst.decided and compared and inst.heads == 1:
            if must < MUST[self.narrow]:
                assert tied, f"a compared sum is {must:.3g} tolerances from zero: no NEAR_TIE"
            if may > MAY[self.narrow]:
                assert not tied, f"NEAR_TIE, but no sum is nearer than {may:.3g} tolerances"
        elif not inst.decided:
            assert not tied, "NEAR_TIE where nothing is compared"

    def _slack(self, inst: Instance) -> float:
        """Twice plain torch's error in a contribution, and a few units in the last place."""
        if self.case.exact or self.case.head == "identity":
            # Contributions are numbers of the values' own precision; sums are float64.
            return 2.0**-53 * (inst.n + 8) * inst.magnitude if not inst.bad.any() else 0.0
        if not inst.n or inst.status & NON_FINITE:
            return 8 * self.eps * inst.magnitude if np.isfinite(inst.magnitude) else 0.0
        real = torch.float32 if self.narrow else torch.float64
        plain = torch.einsum(
            "nhd,chd->nhc",
            torch.from_numpy(inst.values).to(real),
            torch.from_numpy(inst.head_weight).to(real),
        )
        error = float(np.abs(plain.double().numpy() - inst.contributions).max())
        return inst.heads * (2 * error + 8 * self.eps * inst.magnitude)

    def _order(self, inst: Instance, ranking: str, order: np.ndarray, slack: float) -> None:
        assert sorted(order.tolist()) == list(range(inst.n)), f"{ranking}: no permutation {order}"
        name, _, arg = ranking.partition(":")
        if name == "random" and inst.n <= 5000:
            expected = inst.random_order(self.problem.seed, int(arg))
            assert (order == expected).all(), f"random order {order}, expected {expected}"
        elif name == "greedy":
            if inst.decided and inst.n <= 40:
                excess = inst.greedy_excess(order)
                assert excess < 1e-5 + 8 * slack, f"a greedy step is {excess:.3g} worse than best"
        elif name == "minimal":
            if not inst.decided:
                return
            m = inst.minimal
            if self.case.minimal:
                return  # compared with the minimal order below
            if m.size > 0:
                assert set(order[: m.size].tolist()) == set(m.chosen.tolist()), (
                    f"{order} {m.chosen}"
                )
        else:
            keys = inst.keys(name)
            if keys is None:
                return  # given ones are compared where they are made
            keys = np.where(np.isnan(keys), np.inf, keys) if np.isnan(keys).any() else keys
            sorted_keys = keys[order]
            largest = float(np.abs(keys[np.isfinite(keys)]).max(initial=0.0))
            tolerance = 0.0
            if name != "attention" or not inst.is_scores or inst.heads > 1:
                tolerance = (1e-5 + 8 * slack) * largest + inst.key_noise(name, slack) + 1e-17
            if name == "attention" and not inst.is_scores and inst.heads == 1:
                tolerance = 1e-14 * largest
            with np.errstate(all="ignore"):
                rest = np.maximum.accumulate(sorted_keys[::-1])[::-1]
                behind = np.where(rest == sorted_keys, 0, rest - sorted_keys)
            worst = float(behind.max(initial=0.0))
            assert worst <= tolerance, f"{name}: out of order by {worst:.3g} of {largest:.3g}"
            same_key = (sorted_keys[1:] == sorted_keys[:-1]) & (np.diff(order) < 0)
            if tolerance == 0 or name == "attention":
                assert not same_key.any(), f"{name}: ties not by position: {order}"

    def _ranking(
        self,
        b: int,
        r: int,
        inst: Instance,
        points: Points,
        flip: Flip,
        free: bool,
        slack: float,
    ) -> None:
        out, case = self.out, self.case
        lo = self.offsets[b] + b
        at = slice(lo, lo + inst.n + 1)
        decisions = inst.decisions(points)
        y = int(out.label[b])
        # The class a decision moves to is only compared where it leads the others clearly.
        clear = inst.clear(points) > 1.2
        if not free:
            k = int(out.first_flip[r, b])
            assert k == flip.first_flip, f"first flip {k}, expected {flip.first_flip}"
            if k < 0 or clear[k] or case.exact:
                label = int(out.flip_label[r, b])
                assert label == flip.flip_label, f"flip label {label}, expected {flip.flip_label}"
            _close("removed mass", float(out.removed_mass[r, b]), flip.removed_mass, 1e-12)
        if out.curve_decision is not None:
            got = out.curve_decision[r, at].cpu().numpy()
            if inst.decided:
                decisions[-1 if case.keep else 0] = y
            ratios = inst.ratios(points) if inst.decided else np.full(inst.n + 1, np.inf)
            sure = (clear & (ratios > 1.2)) | ~points.valid | case.exact
            sure[-1 if case.keep else 0] |= inst.decided
            wrong = np.flatnonzero((got != decisions) & sure)
            assert not len(wrong), (
                f"decision at {wrong[0]}: {got[wrong[0]]}, not {decisions[wrong[0]]}"
            )
        if out.curve_mass is not None:
            _close("mass", out.curve_mass[r, at], points.mass.astype(float), 1e-12)
        z = points.logits.astype(float)
        if out.curve_logits is not None:
            expected = np.where(points.valid[:, None], z, np.nan)
            _close("logits", out.curve_logits[r, at], expected, slack + 2 * self.eps * np.abs(z))
        bad = bool(inst.status & NON_FINITE)
        z0 = inst.original.logits
        _, js, kl, prob = divergences(z0, points.logits, y if y >= 0 else 0)
        if bad:
            js, kl, prob = (np.full(inst.n + 1, np.nan) for _ in range(3))
        reach = float(np.ptp(points.logits - z0, axis=-1).max()) if not bad else 0.0
        if out.curve_js is not None:
            got = out.curve_js[r, at].double().cpu().numpy()
            _close("JS", got, js, 1e-6 + 2 * slack)
            limit = np.float32(LN2) if self.narrow else LN2
            assert bad or ((got >= 0) & (got <= limit)).all(), "JS outside [0, ln 2]"
        if out.curve_kl is not None:
            got = out.curve_kl[r, at].double().cpu().numpy()
            _close("KL", got, kl, 1e-6 * (1 + kl) + slack * (4 + reach))
            assert bad or (got >= 0).all(), "negative KL"
        if out.curve_label_prob is not None and not (y < 0 and not bad):
            got = out.curve_label_prob[r, at]
            _close("label probability", got, prob, slack + 4 * self.eps)

    def _single(self, inst: Instance, points: Points, lo: int, hi: int, slack: float) -> None:
        out = self.out
        y, n = inst.label, inst.n
        got = out.single_flip_label[lo:hi].cpu().numpy()
        if inst.decided:
            decisions = inst.decisions(points)
            expected = np.where(decisions == y, -1, decisions)
            sure = (inst.ratios(points) > 1.2) & (inst.clear(points) > 1.2)
            sure |= (expected == -1) & (inst.ratios(points) > 1.2) | self.case.exact
            wrong = np.flatnonzero((got != expected) & sure)
            assert not len(wrong), f"single {wrong[0]}: {got[wrong[0]]}, not {expected[wrong[0]]}"
        else:
            assert (got == -1).all(), f"singles {got} of an undecided instance"
        if inst.status & NON_FINITE:
            js = kl = drop = np.full(n, np.nan)
        elif not inst.decided:
            js = kl = drop = np.zeros(n)
        else:
            z0 = inst.original.logits
            _, js, kl, prob = divergences(z0, points.logits, y)
            drop = divergences(z0, np.repeat(z0[None], n, 0), y)[3] - prob
        _close("single JS", out.single_js[lo:hi], js, 1e-6 + 2 * slack)
        if out.single_kl is not None:
            reach = 0.0
            if inst.decided:
                apart = np.ptp(points.logits - inst.original.logits, axis=-1)  # [n]
                reach = float(apart.max(initial=0.0))
            kl_error = 1e-6 * (1 + kl) + slack * (4 + reach)
            _close("single KL", out.single_kl[lo:hi], kl, kl_error)
            assert not (out.single_kl[lo:hi] < 0).any(), "negative single KL"
        _close("single drop", out.single_drop[lo:hi], drop, slack + 6 * self.eps)

    def _minimal(
        self, b: int, inst: Instance, minimal: Minimal, lo: int, hi: int, free: bool
    ) -> None:
        out = self.out
        order = out.minimal_order[lo:hi].cpu().numpy()
        assert sorted(order.tolist()) == list(range(inst.n)), f"minimal: no permutation {order}"
        size, label = int(out.minimal_size[b]), int(out.minimal_flip_label[b])
        if inst.status & NON_FINITE:
            assert (order == np.arange(inst.n)).all(), f"minimal order {order} with bad numbers"
        if free:
            return
        assert size == minimal.size, f"minimal size {size}, expected {minimal.size}"
        if size > 0:
            after = inst.survive(np.setdiff1d(np.arange(inst.n), order[:size]))
            decision = inst.decide(after)
            clear = inst.clear(_stack(after))[0] > 1.2 or self.case.exact or not after.alive
            assert decision != inst.label, f"the set {order[:size]} does not flip"
            if clear:
                assert label == decision, f"minimal flip label {label}, expected {decision}"
            assert inst.positive[order[:size]].all(), "an item without weight is in the set"
        else:
            assert label == -1, f"minimal flip label {label} without a set"
        if inst.decided:
            positive = inst.positive[order]
            assert (np.diff(positive.astype(int)) <= 0).all(), "items without weight are not last"
            self._minimal_order(inst, minimal, order)

    def _minimal_order(self, inst: Instance, minimal: Minimal, order: np.ndarray) -> None:
        """Descending margins of one class, up to what float32 contributions can tell apart."""
        if inst.classes == 1:
            return
        rivals = [c for c in range(inst.classes) if c != inst.label]
        if minimal.winner >= 0:
            target = minimal.winner
        else:
            sums = inst.original.sums
            target = min(rivals, key=lambda c: (sums[inst.label] - sums[c], c))
            lead = sorted(float(sums[inst.label] - sums[c]) for c in rivals)
            if len(lead) > 1 and lead[1] - lead[0] < 1e-6 * inst.norm and not self.case.exact:
                return
        if inst.status & UNDERFLOW:
            return
        m = inst.margins(target)[order[: int(inst.positive.sum())]].astype(float)
        tolerance = 1e-5 * float(
            np.abs(m).max(initial=0.0)
        ) + 32 * self.eps * inst.magnitude * float(inst.mass.max(initial=0.0))
        assert (np.diff(m) <= tolerance).all(), f"minimal order {order} is not by margin {m}"


def _stack(point: Points) -> Points:
    return Points.join([point])


def _close(name: str, got: object, expected: object, tolerance: object) -> None:
    got = got.double().cpu().numpy() if isinstance(got, Tensor) else np.asarray(got, float)
    expected = np.asarray(expected, float)
    assert got.shape == expected.shape, f"{name}: shape {got.shape}, expected {expected.shape}"
    with np.errstate(all="ignore"):
        error = np.abs(got - expected)
        wrong = ~((error <= tolerance) | (np.isnan(got) & np.isnan(expected)))
        wrong &= ~((got == expected) & np.isinf(got))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        bound = np.broadcast_to(np.asarray(tolerance, float), got.shape)[at]
        raise AssertionError(
            f"{name} at {at}: {got[at]!r}, expected {expected[at]!r}, "
            f"off by {error[at]:.3g}, allowed {bound:.3g} ({int(wrong.sum())} wrong)"
        )
