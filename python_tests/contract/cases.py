"""The cases of the contract: data that generates the same problems for every backend.

`CASES` describes them, `CAPS` says how far slow backends shrink them, `build` makes the tensors.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from contract.oracle import Instance
from fastattnerase.problem import Problem, RankingKind

SIMPLE = ("random:0", "attention", "gradient", "product")
SORTED = (*SIMPLE, "random:7", "renormalized_gradient", "keys:normal", "order:reversed")
LOO = ("leave_one_out", "leave_one_out_drop", "minimal")
ALL = (*SORTED, *LOO, "greedy", "keys:ties")
GIVEN = ("order:reversed", "order:shuffled", "keys:normal", "keys:ties")
CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Case:
    """One kind of problem; every field is data."""

    name: str
    lengths: tuple[int, ...] = (5, 1, 12, 0, 7, 30)
    features: int = 8
    classes: int = 3
    heads: int = 1
    values: str = "normal"  # recipe, see _values
    head: str = "normal"  # recipe, see _head
    bias: str = "normal"  # recipe, see _bias
    attention: str = "scores 1"  # kind and recipe, see _attention
    dtype: str = "float32"
    attention_dtype: str = ""  # as the values where empty
    layout: str = "packed"  # how values and attention lie in memory
    spoil: tuple[tuple[str, int, int, float], ...] = ()  # (tensor, instance, item, number)
    rankings: tuple[str, ...] = SORTED
    curves: tuple[str, ...] = CURVES
    single: bool = True
    minimal: bool = True
    keep: bool = False
    exact: bool = False  # every sum is exact in floating point: ties are decided, not excused
    kind: str = ""  # of cases that differ in one number or name; the name where it stands alone
    look: int = 40  # instances the oracle looks at, spread over the batch


@dataclass(frozen=True)
class Caps:
    """How much of the cases a backend runs: never without a kind of case, only less of it."""

    instances: int = 10**9
    items: int = 10**9  # of one instance
    products: int = 10**12  # items times features times classes of a batch
    rankings: int = 10**9  # of one case; which ones depends on the case
    minimal_classes: int = 10**9  # up to which the minimal set is asked for
    siblings: int = 10**9  # cases of one kind


CAPS = {
    "reference": Caps(instances=40),
    "triton": Caps(
        instances=3, items=40, products=40_000, rankings=3, minimal_classes=9, siblings=2
    ),
    "cuda-emulated": Caps(instances=40, items=700, products=4_000_000, minimal_classes=200),
    "cpu-wide": Caps(instances=200, items=5_000, minimal_classes=200),
    "cpu-neon-emulated": Caps(
        instances=40, items=1_100, products=1_000_000, rankings=10, minimal_classes=200, siblings=4
    ),
}


_EVERY = (*range(18), 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 251, 255, 256, 257)


def _cases() -> list[Case]:
    base = Case("base")
    cases = [
        base,
        # Sizes.
        replace(base, name="every-length", lengths=_EVERY, features=5),
        replace(base, name="every-length-double", lengths=_EVERY, features=5, dtype="float64"),
        replace(
            base, name="primes", lengths=(2, 3, 5, 7, 11, 13, 101, 509), features=23, classes=7
        ),
        replace(base, name="around-1024", lengths=(1023, 1, 1024, 1025, 0), features=4, classes=2),
        replace(base, name="around-4096", lengths=(4095, 4096, 4097), features=3, classes=4),
        replace(
            base,
            name="longest",
            lengths=(65_536, 3, 65_535),
            features=3,
            classes=2,
            rankings=SIMPLE,
        ),
        replace(
            base,
            name="longest-five-classes",
            lengths=(7, 40_009),
            classes=5,
            rankings=("attention", "keys:ties", "random:1"),
            attention="weights softmax 4",
            dtype="bfloat16",
        ),
        replace(base, name="no-instances", lengths=()),
        replace(base, name="only-empty", lengths=(0,)),
        replace(base, name="all-empty", lengths=(0,) * 33, bias="instance"),
        replace(base, name="all-single", lengths=(1,) * 40),
        replace(base, name="one-instance", lengths=(20,), rankings=ALL),
        replace(base, name="no-rankings", rankings=()),
        replace(base, name="nothing-else-wanted", curves=(), single=False, minimal=False),
        replace(base, name="only-minimal", curves=(), single=False, rankings=()),
        replace(base, name="only-single", curves=(), minimal=False, rankings=()),
        replace(base, name="one-curve", curves=("js",), single=False, minimal=False),
        replace(base, name="other-curves", curves=("kl", "decision"), single=False, minimal=False),
        replace(base, name="logits-curve", curves=("logits", "mass"), classes=6),
        replace(base, name="han", lengths=(7, 6, 9, 3, 12, 1, 0, 8) * 50, features=100, classes=5),
        replace(base, name="flan", lengths=(310, 150), features=100, classes=10, curves=("js",)),
        replace(base, name="bilstm", lengths=(180, 95), features=256, classes=2, bias="zero"),
        replace(base, name="transformer", lengths=(128, 128), features=768, classes=2),
        replace(
            base,
            name="seventy-thousand-instances",
            lengths=tuple(i % 4 for i in range(70_000)),
            features=2,
            classes=2,
            rankings=("attention", "product"),
            curves=("js",),
            look=200,
        ),
        replace(
            base,
            name="many-random-orders",
            lengths=(9, 0, 17, 33),
            rankings=tuple(f"random:{i}" for i in range(70)),
        ),
        # Attention.
        replace(base, name="all-rankings", lengths=(14, 9, 2, 1, 0, 21), rankings=ALL),
        replace(
            base, name="all-rankings-keep", lengths=(14, 9, 2, 1, 0, 21), rankings=ALL, keep=True
        ),
        replace(base, name="weights", attention="weights softmax 1", rankings=ALL),
        replace(base, name="weights-unnormalised", attention="weights uniform 50", rankings=ALL),
        replace(base, name="peaked", attention="scores 12", lengths=(200, 60, 9, 2, 40)),
        replace(
            base, name="peaked-rankings", attention="scores 12", lengths=(17, 9, 3), rankings=ALL
        ),
        replace(base, name="peaked-keep", attention="scores 12", lengths=(90, 9, 2), keep=True),
        replace(base, name="peaked-weights", attention="weights softmax 12", dtype="float64"),
        replace(base, name="one-heavy", attention="weights heavy", rankings=ALL),
        replace(base, name="tiny-rest", attention="weights rest", rankings=ALL),
        replace(base, name="subnormal-weights", attention="weights subnormal", lengths=(6, 3, 20)),
        replace(base, name="huge-weights", attention="weights uniform 1e30", lengths=(6, 3, 20)),
        replace(base, name="wide-span", attention="scores span 1400", lengths=(19, 8, 40, 2)),
        replace(
            base, name="wide-span-all", attention="scores span 700", lengths=(12, 5), rankings=ALL
        ),
        replace(
            base, name="wide-span-keep", attention="scores span 900", lengths=(12, 5), keep=True
        ),
        replace(base, name="near-span", attention="scores span 599", lengths=(12, 5, 33)),
        replace(base, name="astronomic-span", attention="scores span 1e30", lengths=(12, 5, 33)),
        replace(base, name="holes", attention="scores holes 1", lengths=(12, 5, 33, 1, 2)),
        replace(base, name="zero-weights", attention="weights holes 1", lengths=(12, 5, 33, 1, 2)),
        replace(
            base, name="holes-all", attention="scores holes 1", lengths=(11, 4, 9), rankings=ALL
        ),
        replace(base, name="zero-mass", attention="weights zero", lengths=(4, 1, 0), rankings=ALL),
        replace(base, name="zero-mass-scores", attention="scores none", lengths=(4, 1, 0)),
        replace(base, name="zero-mass-keep", attention="weights zero", lengths=(4, 1), keep=True),
        replace(base, name="equal-scores", attention="scores equal", lengths=(64, 50, 7)),
        replace(base, name="lowest-scores", attention="scores lowest", lengths=(9, 1, 4)),
        *(
            replace(
                base,
                name=f"mask-constant{constant}-{dtype}",
                kind="mask",
                attention=f"scores mask {constant}",
                attention_dtype=dtype,
                lengths=(9, 4, 17),
            )
            for constant in ("-1e4", "-65504", "-1e9", "-1e20")
            for dtype in ("float16", "float32", "bfloat16")
        ),
        # Biases and heads.
        replace(base, name="bias-zero", bias="zero"),
        replace(base, name="bias-per-instance", bias="instance", rankings=ALL),
        replace(base, name="bias-per-instance-double", bias="instance", dtype="float64"),
        replace(base, name="bias-decides", bias="large", lengths=(30, 4, 1, 0, 9)),
        replace(base, name="head-zero", head="zero", bias="normal"),
        replace(base, name="head-and-bias-zero", head="zero", bias="zero", exact=True),
        replace(base, name="confident", head="scaled 40", values="normal"),
        replace(base, name="classes-alike", head="alike 100", lengths=(7, 60, 16)),
        # Contributions are the values themselves: divergences are held to 1e-6 and no more.
        *(
            replace(
                base,
                name=f"identity-{c}-{scale}-{dtype}",
                kind="identity",
                head="identity",
                features=c,
                classes=c,
                values=f"scaled {scale}",
                attention="scores 2",
                lengths=(40, 5, 17, 130),
                dtype=dtype,
            )
            for c, scale, dtype in (
                (2, 1, "float32"),
                (3, 20, "float32"),
                (10, 300, "float32"),
                (17, 0.01, "float32"),
                (5, 5, "float64"),
                (5, 5, "bfloat16"),
                (64, 4, "float16"),
            )
        ),
        replace(
            base,
            name="identity-head-peaked",
            head="identity",
            features=9,
            classes=9,
            attention="scores 6",
            values="scaled 3",
        ),
        replace(base, name="two-classes", classes=2, features=33, bias="zero", rankings=ALL),
        # Numbers.
        replace(base, name="large-values", values="scaled 1e10", bias="zero"),
        replace(base, name="small-values", values="scaled 1e-10", bias="zero"),
        replace(base, name="subnormal-values", values="scaled 1e-40", bias="zero"),
        replace(base, name="subnormal-half", values="scaled 1e-6", bias="zero", dtype="float16"),
        # Ties, where every sum is exact.
        *(
            replace(
                base,
                name=f"exact-{attention.split()[-1]}-{dtype}-{'keep' if keep else 'erase'}",
                kind="exact",
                lengths=(1, 2, 4, 8, 16, 32, 64, 3, 0),
                values="integers",
                head="integers",
                bias="integers",
                attention=f"weights {attention}",
                dtype=dtype,
                classes=4,
                features=3,
                keep=keep,
                exact=True,
            )
            for attention in ("ones", "binary", "onehot")
            for dtype in ("float32", "bfloat16", "float16", "float64")
            for keep in (False, True)
        ),
        replace(
            base,
            name="exact-scores",
            lengths=(1, 2, 4, 8, 16, 32),
            values="integers",
            head="integers",
            bias="integers",
            attention="scores equal",
            features=2,
            exact=True,
            rankings=(*SORTED, *LOO, "keys:ties"),
        ),
        replace(
            base,
            name="exact-two-classes",
            lengths=(4, 8, 16, 2, 1),
            values="integers",
            head="integers",
            bias="zero",
            attention="weights binary",
            features=1,
            classes=2,
            exact=True,
            rankings=(*SORTED, *LOO, "keys:ties"),
        ),
        replace(
            base,
            name="tied-values",
            values="repeated",
            attention="scores steps",
            lengths=(40, 9, 130),
            rankings=(*SORTED, "keys:ties", "minimal"),
        ),
        # Bad numbers.
        *(
            replace(
                base,
                name=f"bad-{where}-{number}{'-keep' if keep else ''}",
                kind=f"bad-{where}",
                lengths=(6, 5, 1, 7),
                spoil=((where, 1, 2, number), (where, 2, 0, number)),
                keep=keep,
                rankings=(*ALL, "order:shuffled") if where == "values" else SORTED,
            )
            for where in ("values", "attention")
            for number in (NAN, INF, -INF)
            for keep in (False, True)
            if not (where == "attention" and number == -INF)
        ),
        *(
            replace(
                base,
                name=f"bad-weights-{number}",
                lengths=(6, 5, 1, 7),
                rankings=SORTED,
                attention="weights softmax 1",
                spoil=(("attention", 1, 2, number), ("attention", 2, 0, number)),
            )
            for number in (NAN, INF)
        ),
        *(
            replace(
                base,
                name=f"bad-bias-{number}",
                lengths=(6, 5, 1, 0, 7),
                bias="instance",
                spoil=tuple(("bias", b, 1, number) for b in (1, 2, 3)),
            )
            for number in (NAN, INF, -INF)
        ),
        replace(base, name="bad-shared-bias", lengths=(4, 0, 1), spoil=(("bias", 0, 2, NAN),)),
        replace(base, name="bad-head", lengths=(4, 0, 1), spoil=(("head", 1, 2, NAN),)),
        replace(
            base,
            name="several-bad-items",
            lengths=(9, 9),
            spoil=(("values", 0, 3, NAN), ("values", 0, 7, INF), ("attention", 0, 1, NAN)),
        ),
        replace(base, name="overflow", values="scaled 1e25", head="scaled 1e25", lengths=(4, 9)),
        replace(
            base,
            name="overflow-one-item",
            lengths=(6, 6),
            head="scaled 1e5",
            spoil=(("values", 1, 2, 3e38), ("values", 0, 5, -3e38)),
        ),
        replace(
            base,
            name="overflow-but-not-in-differences",
            lengths=(6, 30),
            head="alike 1e5",
            spoil=(("values", 1, 2, 1e35), ("values", 0, 5, -1e35)),
        ),
        replace(
            base,
            name="no-overflow-double",
            values="scaled 1e25",
            head="scaled 1e25",
            dtype="float64",
            lengths=(4, 9),
        ),
        replace(
            base,
            name="bad-and-wide",
            attention="scores span 900",
            lengths=(6, 5),
            spoil=(("values", 1, 2, NAN),),
        ),
    ]
    # Classes and features, each on every register and block boundary.
    cases += [
        replace(
            base,
            name=f"classes-{c}",
            kind="classes",
            classes=c,
            lengths=(13, 1, 34),
            features=6,
            rankings=(*SORTED, *LOO) if c < 40 else SIMPLE,
        )
        for c in (1, 2, 4, 5, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 64, 65, 127, 1000)
    ]
    cases += [
        replace(
            base,
            name=f"features-{d}",
            kind="features",
            features=d,
            lengths=(7, 1, 18),
            classes=2 + d % 3,
        )
        for d in (
            1,
            2,
            3,
            4,
            5,
            7,
            9,
            15,
            16,
            17,
            31,
            32,
            33,
            63,
            64,
            65,
            100,
            127,
            128,
            129,
            255,
            256,
            257,
            384,
            513,
            768,
            1023,
            4096,
            8192,
        )
    ]
    cases += [
        replace(
            base,
            name=f"features-{d}-classes-{c}-{dtype}",
            kind=dtype,
            features=d,
            classes=c,
            dtype=dtype,
            lengths=(5, 9, 1),
            rankings=SIMPLE,
        )
        for d, c in ((127, 17), (513, 10), (4096, 3), (64, 33), (8, 1))
        for dtype in ("float64", "bfloat16", "float16")
    ]
    # Types and layouts.
    cases += [
        replace(
            base,
            name=f"{dtype}-with-{attention}-{kind.split()[0]}",
            kind="types",
            dtype=dtype,
            attention_dtype=attention,
            attention=kind,
            features=40,
        )
        for dtype in ("float32", "float64", "bfloat16", "float16")
        for attention in ("float32", "float64", "bfloat16", "float16")
        for kind in ("scores 2", "weights softmax 2")
    ]
    cases += [
        replace(
            base, name=f"{layout}-{dtype}", kind=layout, layout=layout, dtype=dtype, features=17
        )
        for layout in ("sliced", "offset", "expanded", "column")
        for dtype in ("float32", "bfloat16", "float64")
    ]
    # Several attention heads.
    cases += [
        replace(base, name="heads-2", heads=2, minimal=False),
        replace(
            base, name="heads-3-weights", heads=3, minimal=False, attention="weights softmax 2"
        ),
        replace(base, name="heads-4-keep", heads=4, minimal=False, keep=True, classes=2),
        replace(base, name="heads-holes", heads=2, minimal=False, attention="weights holes 1"),
        replace(base, name="heads-wide", heads=2, minimal=False, attention="scores span 900"),
        replace(base, name="heads-bad", heads=2, minimal=False, spoil=(("values", 2, 3, NAN),)),
        replace(
            base,
            name="heads-all",
            heads=2,
            minimal=False,
            lengths=(9, 4, 1, 0),
            rankings=tuple(r for r in ALL if r != "minimal"),
        ),
        replace(
            base,
            name="heads-sliced-bfloat16",
            heads=2,
            minimal=False,
            layout="sliced",
            dtype="bfloat16",
            attention_dtype="float32",
        ),
    ]
    return cases


CASES = {case.name: case for case in _cases()}


def chosen(caps: Caps) -> list[str]:
    """The cases of a backend: all, or the ends and some between of every kind."""
    kinds: dict[str, list[str]] = {}
    for name, case in CASES.items():
        kinds.setdefault(case.kind or name, []).append(name)
    return [name for names in kinds.values() for name in _spread(names, caps.siblings)]


def _spread(things: list[str], count: int) -> list[str]:
    if len(things) <= count:
        return things
    return [things[i] for i in np.unique(np.linspace(0, len(things) - 1, count).astype(int))]


def within(caps: Caps) -> str:
    """What `caps` leave of the contract's cases, for people: `190 of 236 cases, …`."""
    kept = [shrink(CASES[name], caps) for name in chosen(caps)]

    def sizes(cases: Iterable[Case]) -> tuple[int, ...]:
        each = [(1, len(c.rankings), len(c.lengths), sum(c.lengths), int(c.minimal)) for c in cases]
        return tuple(map(sum, zip(*each, strict=True)))

    names = ("cases", "rankings", "instances", "items", "minimal sets")
    both = zip(sizes(kept), sizes(CASES.values()), names, strict=True)
    return "capped to " + ", ".join(f"{few:,} of {all_:,} {name}" for few, all_, name in both)


def shrink(case: Case, caps: Caps) -> Case:
    """The same kind of case within `caps`; spoilt items and the first instances stay."""
    floor = 1 + max((item for _, _, item, _ in case.spoil), default=0)
    lengths = [min(n, max(caps.items, floor)) for n in case.lengths]
    if len(lengths) > caps.instances:
        # What is spoilt comes first; the rest is spread, so that a ragged batch stays ragged.
        keep = 1 + max((b for _, b, _, _ in case.spoil), default=-1)
        others = lengths[keep:]
        rest = min(max(caps.instances - keep, 1), len(others))
        pick = np.linspace(0, len(others) - 1, rest).astype(int) if rest else ()
        lengths = lengths[:keep] + [others[i] for i in pick]
    each = max(case.features * case.classes * case.heads, 1)
    while sum(lengths) * each > caps.products and max(lengths) > floor:
        longest = max(lengths)
        lengths = [max(n * 2 // 3, floor) if n == longest else n for n in lengths]
    turn = zlib.crc32(case.name.encode()) % max(len(case.rankings), 1)
    rankings = (case.rankings[turn:] + case.rankings[:turn])[: caps.rankings]
    return replace(
        case,
        lengths=tuple(lengths),
        rankings=rankings,
        minimal=case.minimal and case.classes <= caps.minimal_classes,
    )


@dataclass(frozen=True)
class Built:
    """The tensors of a case."""

    case: Case
    problem: Problem
    seen: dict[int, Instance] = field(default_factory=dict)

    def some(self, count: int) -> list[int]:
        """At most `count` instances, spread over the batch."""
        instances = len(self.case.lengths)
        if instances <= count:
            return list(range(instances))
        return np.unique(np.linspace(0, instances - 1, count).astype(int)).tolist()

    def instance(self, b: int) -> Instance:
        """The numbers of one instance, as the engine must see them."""
        if b not in self.seen:
            self.seen[b] = self._instance(b)
        return self.seen[b]

    def _instance(self, b: int) -> Instance:
        p = self.problem
        lo, hi = int(p.offsets[b]), int(p.offsets[b + 1])
        bias = p.head_bias if p.head_bias.dim() == 1 else p.head_bias[b]
        return Instance(
            values=p.values[lo:hi].double().cpu().numpy(),
            attention=p.attention[lo:hi].double().cpu().numpy(),
            is_scores=p.is_scores,
            head_weight=p.head_weight.double().cpu().numpy(),
            bias=bias.double().cpu().numpy(),
            identity=int(p.ids[b]),
            narrow=p.values.dtype != torch.float64,
        )


def build(case: Case, device: str = "cpu") -> Built:
    """Make the tensors of a case; the same on every machine and backend."""
    g = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    dtype = getattr(torch, case.dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    offsets = torch.tensor([0, *np.cumsum(case.lengths, dtype=np.int64)], dtype=torch.int64)
    total, instances = int(offsets[-1]), len(case.lengths)
    shape = (total, case.heads, case.features)
    values = _values(case, shape, g)
    attention = _attention(case, offsets, g)
    head = _head(case, g)
    bias = _bias(case, instances, g)
    for where, b, item, number in case.spoil:
        at = int(offsets[b]) + item if b < instances else 0
        if where == "values":
            values[at, 0, item % case.features] = number
        elif where == "attention":
            attention[at, 0] = number
        elif where == "head":
            head[b, 0, item] = number
        elif bias.dim() == 2:
            bias[b, item] = number
        else:
            bias[item] = number
    kinds: list[RankingKind] = []
    args: list[int] = []
    orders: list[Tensor] = []
    keys: list[Tensor] = []
    for ranking in case.rankings:
        name, _, arg = ranking.partition(":")
        if name == "order":
            kinds.append(RankingKind.GIVEN_ORDER)
            args.append(len(orders))
            orders.append(_order(case, arg, g).to(device))
        elif name == "keys":
            kinds.append(RankingKind.GIVEN_KEYS)
            args.append(len(keys))
            keys.append(_keys(arg, total, g).to(device))
        else:
            kinds.append(RankingKind[name.upper()])
            args.append(int(arg or 0))
    attention_dtype = getattr(torch, case.attention_dtype or case.dtype)
    values, attention = lay_out(
        case.layout, values.to(dtype).to(device), attention.to(attention_dtype).to(device)
    )
    problem = Problem(
        values=values,
        offsets=guarded(offsets.to(device)),
        attention=attention,
        is_scores=case.attention.startswith("scores"),
        head_weight=guarded(head.to(dtype).to(wide).to(device)),
        head_bias=guarded(bias.to(wide).to(device)),
        ids=guarded((torch.arange(instances) * 3 + 11).to(device)),
        rankings=tuple(kinds),
        ranking_args=tuple(args),
        orders=tuple(guarded(order) for order in orders),
        keys=tuple(guarded(key) for key in keys),
        seed=zlib.crc32(b"seed" + case.name.encode()),
        keep=case.keep,
        validate=True,
    )
    return Built(case, problem)


def _values(case: Case, shape: tuple[int, int, int], g: torch.Generator) -> Tensor:
    kind, *arg = case.values.split()
    if kind == "integers":
        return torch.randint(-3, 4, shape, generator=g).double()
    values = torch.randn(shape, generator=g, dtype=torch.float64)
    if kind == "repeated":
        values = values[torch.arange(shape[0]) % 3] if shape[0] else values
    if kind == "scaled":
        values *= float(arg[0])
    return values


def _head(case: Case, g: torch.Generator) -> Tensor:
    kind, *arg = case.head.split()
    shape = (case.classes, case.heads, case.features)
    if kind == "zero":
        return torch.zeros(shape, dtype=torch.float64)
    if kind == "identity":
        return torch.eye(case.classes, case.features, dtype=torch.float64)[:, None]
    if kind == "integers":
        return torch.randint(-2, 3, shape, generator=g).double()
    weight = torch.randn(shape, generator=g, dtype=torch.float64) / math.sqrt(case.features)
    if kind == "alike":  # a row that all classes share, beside their own
        return weight[:1] * float(arg[0]) + weight
    return weight * float(arg[0]) if arg else weight


def _bias(case: Case, instances: int, g: torch.Generator) -> Tensor:
    if case.bias == "zero":
        return torch.zeros(case.classes, dtype=torch.float64)
    if case.bias == "integers":
        return torch.randint(-1, 2, (case.classes,), generator=g).double()
    shape = (instances, case.classes) if case.bias == "instance" else (case.classes,)
    bias = torch.randn(shape, generator=g, dtype=torch.float64)
    return bias * (5 if case.bias == "large" else 0.3)


def _attention(case: Case, offsets: Tensor, g: torch.Generator) -> Tensor:
    kind, recipe, *arg = case.attention.split()
    total = int(offsets[-1])
    shape = (total, case.heads)
    normal = torch.randn(shape, generator=g, dtype=torch.float64)
    uniform = torch.rand(shape, generator=g, dtype=torch.float64)
    if kind == "scores":
        if recipe == "span":
            out = torch.zeros(shape, dtype=torch.float64)
            for lo, hi in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                for h in range(case.heads):
                    steps = torch.linspace(-0.5, 0.5, hi - lo, dtype=torch.float64)
                    out[lo:hi, h] = steps[torch.randperm(hi - lo, generator=g)] * float(arg[0])
            return out
        if recipe == "holes":
            return torch.where(uniform < 0.3, -INF, normal)
        if recipe == "none":
            return torch.full(shape, -INF, dtype=torch.float64)
        if recipe == "equal":
            return torch.full(shape, 0.37, dtype=torch.float64)
        if recipe == "steps":
            return (normal * 2).round() / 2
        if recipe == "lowest":
            lowest = torch.finfo(getattr(torch, case.attention_dtype or case.dtype)).min
            return torch.full(shape, lowest, dtype=torch.float64)
        if recipe == "mask":
            constant = float(arg[0])
            masked = torch.where(uniform < 0.3, constant, normal)
            # An instance that is nothing but mask is a case of its own ("equal-scores").
            masked[offsets[:-1][offsets.diff() > 0]] = 0.5
            return masked
        return normal * float(recipe)
    if recipe == "softmax":
        out = torch.zeros(shape, dtype=torch.float64)
        for lo, hi in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            out[lo:hi] = torch.softmax(normal[lo:hi] * float(arg[0]), 0)
        return out
    if recipe == "uniform":
        return uniform * float(arg[0])
    if recipe == "subnormal":
        return uniform * 1e-41
    if recipe == "holes":
        return torch.where(normal < -0.5, 0.0, uniform)
    if recipe == "zero":
        return torch.zeros(shape, dtype=torch.float64)
    out = torch.zeros(shape, dtype=torch.float64)
    for lo, hi in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        n = hi - lo
        if not n:
            continue
        if recipe == "heavy":  # one item holds nearly everything
            out[lo:hi] = 1e-12 * uniform[lo:hi]
            out[lo + n // 2] = 1.0
        elif recipe == "rest":  # what is left after the first is far below one ulp of it
            out[lo:hi] = 1e-20
            out[lo] = 1.0
        elif recipe == "onehot":
            out[lo + n // 3] = 1.0
        else:  # "ones", "binary": as many ones as a power of two, so that their shares are exact
            ones = n if recipe == "ones" else max(n // 2, 1)
            ones = 1 << (ones.bit_length() - 1)
            out[lo + torch.randperm(n, generator=g)[:ones]] = 1.0
    return out


def _order(case: Case, recipe: str, g: torch.Generator) -> Tensor:
    parts = [
        torch.arange(n - 1, -1, -1) if recipe == "reversed" else torch.randperm(n, generator=g)
        for n in case.lengths
    ]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])


def _keys(recipe: str, total: int, g: torch.Generator) -> Tensor:
    keys = torch.randn(total, generator=g, dtype=torch.float64)
    if recipe == "ties":
        keys = keys.round()
        keys[::5] = -0.0  # equal to 0: a tie, by position
        return keys.float()
    return keys


def guarded(tensor: Tensor, margin: int = 64, stride: int = 0) -> Tensor:
    """A copy between two bands of NaN or of the least integer, rows `stride` elements apart."""
    bad = NAN if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    width = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.numel() // width if width else 0
    stride = stride or width
    room = torch.full((rows * stride + 2 * margin,), bad, dtype=tensor.dtype, device=tensor.device)
    inner = [1]
    for size in reversed(tensor.shape[1:]):
        inner.insert(0, inner[0] * (stride if len(inner) == 1 else size))
    view = room.as_strided(tensor.shape, inner[: tensor.dim()], margin)
    view.copy_(tensor)
    return view


def bands(view: Tensor) -> Tensor:
    """Every element of a guarded tensor's room that is not its own."""
    room = view.as_strided(
        (view.untyped_storage().nbytes() // view.element_size(),), (1,), 0
    ).clone()
    own = torch.zeros(len(room), dtype=torch.bool, device=view.device)
    own.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    return room[~own]


def lay_out(layout: str, values: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
    """Values [T, H, D] and attention [T, H] in memory: all forms keep a unit last stride."""
    if layout == "packed":
        return guarded(values), guarded(attention)
    if layout == "sliced":  # rows further apart than they are long, gaps full of NaN
        return guarded(values, stride=values.shape[-1] + 3), guarded(
            attention, stride=attention.shape[-1] + 2
        )
    if layout == "offset":  # no row starts at an address vector loads like
        return guarded(values, margin=65), guarded(attention, margin=61)
    if layout == "expanded":  # every item has the values of the first
        first = guarded(values[:1])
        return first.expand(values.shape), guarded(attention)
    if layout == "column":  # attention as one column of a wider table
        table = torch.full(
            (len(attention), attention.shape[1], 5),
            NAN,
            dtype=attention.dtype,
            device=attention.device,
        )
        table[..., 3] = attention
        return guarded(values), table[..., 3]
    raise ValueError(layout)
