"""Trained weights in the layouts of published code, read as weights only and as nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fastattnerase.extras import needs
from fastattnerase.fields import one_of
from fastattnerase.mil.errors import BagError
from fastattnerase.mil.models import Part, PoolModel
from fastattnerase.mil.readers import load_weights

Layout = Literal["AttentionDeepMIL", "CLAM", "torchmil"]
Activation = Literal["tanh", "relu", "gelu"]
Weights = dict[str, Tensor]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
_INSIDE = ("state_dict", "model_state_dict", "model")  # where checkpoints keep the weights
# What is trained beside the model and has no part in its decisions.
_BESIDE = ("instance_classifiers.", "inst_classifiers.", "instance_loss_fn.", "inst_loss_fn.")
_IMAGE = 28  # side of AttentionDeepMIL's images


class GatedAttention(nn.Module):
    """Scores `w · (tanh(V h) ⊙ sigmoid(U h))`, Ilse et al. 2018, equation 9."""

    def __init__(self, first: nn.Module, gate: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first, self.gate, self.last = first, gate, last

    def forward(self, vectors: Tensor) -> Tensor:
        """Score vectors [m, H]: [m, K]."""
        scores: Tensor = self.last(self.first(vectors) * self.gate(vectors).sigmoid())
        return scores


def read_model(
    path: Path | str,
    *,
    layout: Layout | None = None,
    embed: Part | None = None,
    activation: Activation = "tanh",
    binary: bool = True,
) -> PoolModel:
    """Read a trained pool from a state dict in the layout of published code.

    | layout | its code | told by |
    | --- | --- | --- |
    | `CLAM` | mahmoodlab/CLAM, single and multi branch | `attention_net.0.weight` |
    | `AttentionDeepMIL` | AMLab-Amsterdam's, plain and gated | `attention.0`, `attention_V.0` |
    | `torchmil` | its `ABMIL` and `CLAM_SB`, plain and gated | `pool.fc1.module.weight` |

    Args:
        path: `.pt`, `.pth` (what `torch.save` wrote of a state dict, also inside a checkpoint under
            `state_dict` or `model`; weights only, nothing is unpickled) or `.safetensors`.
        layout: one of these; None: told by the names of the weights.
        embed: what maps patches to the vectors that attention reads, where the file has no weights
            for it or some of unknown form (torchmil's `feat_ext`).
        activation: of plain attention and of the ungated half, which weights do not say; "tanh" in
            the published code, torchmil has "relu" and "gelu", too.
        binary: as of `PoolModel`.

    Returns:
        A `PoolModel`.

    Raises:
        BagError: no file, a pickle, weights of another layout (with their first names) or of
            shapes that do not fit.

    Example:
        >>> import tempfile, torch
        >>> from fastattnerase import mil
        >>> weights = {"pool.fc1.weight": torch.zeros(2, 4), "pool.fc1.bias": torch.zeros(2),
        ...     "pool.fc2.weight": torch.zeros(1, 2), "classifier.weight": torch.zeros(1, 4),
        ...     "classifier.bias": torch.zeros(1)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save(weights, f"{folder}/model.pt")
        ...     model = mil.read_model(f"{folder}/model.pt")
        >>> model.name, model.width, model.classes
        ('torchmil', 4, 2)
    """
    path = Path(path)
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout: given {layout!r}, needed {one_of(list(LAYOUTS))}")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation: given {activation!r}, needed {one_of(list(_ACTIVATIONS))}")
    weights = _weights(path)
    told: str | None = layout or next(
        (name for name, key in _TOLD.items() if _has(weights, key)), None
    )
    if told is None or not _has(weights, _TOLD[told]):
        names = ", ".join(list(weights)[:4]) or "nothing"
        needed = one_of(list(LAYOUTS)) if told is None else told
        raise BagError(
            f"{path}: given weights {names}, …, needed the layout of {needed}; a module of your "
            "own is mil.PoolModel.from_module"
        )
    reader = _Reader(path, weights, activation)
    parts = _MAKERS[told](reader, embed)
    if left := sorted(weights.keys() - reader.read):
        raise BagError(
            f"{path}: given {left[0]}, which {told}'s layout has not, needed embed=… for weights "
            "before the attention, or mil.PoolModel.from_module"
        )
    return PoolModel(**parts, binary=binary, name=told)


def _weights(path: Path) -> Weights:
    """Load the weights of a file by their names, without what wraps them or trains beside them."""
    if not path.is_file():
        raise BagError(f"{path}: given no file, needed a model's weights")
    if path.suffix.lower() == ".safetensors":
        with needs("mil"):
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        try:
            content: Any = load_file(path)
        except SafetensorError:
            raise BagError(f"{path}: given a damaged file, needed safetensors") from None
    else:
        content = load_weights(path, "a state dict of tensors")
    for key in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(t, Tensor) for t in content.values()):
        raise BagError(f"{path}: given {type(content).__name__}, needed a state dict of tensors")
    weights = {str(name): tensor for name, tensor in content.items()}
    for prefix in ("module.", "model.", "net."):  # of DataParallel and of trainers
        if weights and all(name.startswith(prefix) for name in weights):
            weights = {name[len(prefix) :]: tensor for name, tensor in weights.items()}
    # CLAM's own: its attention part alone was spread over GPUs.
    spread = re.compile(r"^attention_net\.module\.(?=\d)")
    weights = {spread.sub("attention_net.", name): tensor for name, tensor in weights.items()}
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_BESIDE)}


class _Reader:
    """Builds layers of weights, and remembers which it took."""

    def __init__(self, path: Path, weights: Weights, activation: str) -> None:
        self.path, self.weights, self.read = path, weights, set[str]()
        self.activation = _ACTIVATIONS[activation]

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.weights

    def take(self, name: str, ndim: int) -> Tensor:
        if name not in self.weights:
            raise BagError(f"{self.path}: given weights without {name}, needed it")
        found = self.weights[name]
        if found.ndim != ndim or not found.is_floating_point():
            raise BagError(
                f"{self.path}: given {name} {list(found.shape)} of {found.dtype}, needed {ndim} "
                "axes of floats"
            )
        self.read.add(name)
        # Half precision is widened: the CPU computes it slowly, and sums of it are coarse.
        return found if found.dtype == torch.float64 else found.float()

    def linear(self, name: str, inputs: int | None = None) -> nn.Linear:
        """Build a linear layer; `inputs` is what the layer before it gives."""
        weight = self.take(f"{name}.weight", 2)
        bias = self.take(f"{name}.bias", 1) if f"{name}.bias" in self.weights else None
        wrong = inputs is not None and weight.shape[1] != inputs
        if wrong or (bias is not None and len(bias) != len(weight)):
            needed = f"[{len(weight)}, {weight.shape[1] if inputs is None else inputs}]"
            raise BagError(
                f"{self.path}: given {name}.weight {list(weight.shape)} with a bias "
                f"{None if bias is None else list(bias.shape)}, needed {needed} and [{len(weight)}]"
            )
        layer = nn.Linear(weight.shape[1], len(weight), bias is not None, dtype=weight.dtype)
        with torch.no_grad():
            layer.weight.copy_(weight)
            if bias is not None:
                layer.bias.copy_(bias)
        return layer

    def convolution(self, name: str) -> nn.Conv2d:
        weight = self.take(f"{name}.weight", 4)
        sides = (weight.shape[2], weight.shape[3])
        made = nn.Conv2d(weight.shape[1], len(weight), sides, dtype=weight.dtype)
        assert made.bias is not None
        with torch.no_grad():
            made.weight.copy_(weight)
            made.bias.copy_(self.take(f"{name}.bias", 1))
        return made

    def attention(self, first: str, last: str, gate: str | None, inputs: int) -> nn.Module:
        """Build attention: plain, or gated where there is a gate."""
        one = self.linear(first, inputs)
        end = self.linear(last, one.out_features)
        if gate is None:
            return nn.Sequential(one, self.activation(), end)
        return GatedAttention(nn.Sequential(one, self.activation()), self.linear(gate, inputs), end)


def _clam(reader: _Reader, embed: Part | None) -> dict[str, Any]:
    """Read CLAM: `h = ReLU(W x)`, attention of one branch or one a class, linear classifiers."""
    if embed is not None:
        raise BagError(
            f"{reader.path}: given embed=… with CLAM's weights, which have it, needed none"
        )
    encoder = reader.linear("attention_net.0")
    found = (re.match(r"attention_net\.([1-9])\.", name) for name in reader.weights)
    places = {match[1] for match in found if match}
    if len(places) != 1:
        raise BagError(f"{reader.path}: given attention_net.{{{', '.join(sorted(places))}}}, "
                       "needed one attention behind attention_net.0")  # fmt: skip
    net = f"attention_net.{places.pop()}"
    H = encoder.out_features
    if reader.has(f"{net}.attention_a.0"):
        attention = reader.attention(
            f"{net}.attention_a.0", f"{net}.attention_c", f"{net}.attention_b.0", H
        )
    else:  # with dropout the last layer stands one further
        last = "3" if reader.has(f"{net}.module.3") else "2"
        attention = reader.attention(f"{net}.module.0", f"{net}.module.{last}", None, H)
    if reader.has("classifiers"):
        classifier: nn.Module = reader.linear("classifiers", H)
    else:
        count = sum(name.startswith("classifiers.") and name.endswith("weight")
                    for name in reader.weights)  # fmt: skip
        classifier = nn.ModuleList([reader.linear(f"classifiers.{c}", H) for c in range(count)])
    return {
        "embed": nn.Sequential(encoder, nn.ReLU()), "attention": attention,
        "classifier": classifier, "width": encoder.in_features,
    }  # fmt: skip


def _deep_mil(reader: _Reader, embed: Part | None) -> dict[str, Any]:
    """Read AttentionDeepMIL: convolutions of images where there are some, ReLU(W x), attention."""
    width = None
    if embed is None:
        layers: list[nn.Module] = []
        if reader.has("feature_extractor_part1.0"):
            one = reader.convolution("feature_extractor_part1.0")
            two = reader.convolution("feature_extractor_part1.3")
            layers += [
                nn.Unflatten(1, (one.in_channels, _IMAGE, _IMAGE)),
                *(one, nn.ReLU(), nn.MaxPool2d(2, 2)),
                *(two, nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()),
            ]
            width = one.in_channels * _IMAGE**2
        if reader.has("feature_extractor_part2.0"):
            linear = reader.linear("feature_extractor_part2.0")
            layers += [linear, nn.ReLU()]
            width = width or linear.in_features
        embed = nn.Sequential(*layers) if layers else None
    else:  # its weights are in the part that is given
        reader.read |= {name for name in reader.weights if name.startswith("feature_extractor")}
    gated = reader.has("attention_V.0")
    first = "attention_V.0" if gated else "attention.0"
    H = reader.take(f"{first}.weight", 2).shape[1]
    if gated:
        attention = reader.attention(first, "attention_w", "attention_U.0", H)
    else:
        attention = reader.attention(first, "attention.2", None, H)
    classifier = reader.linear("classifier.0")
    if embed is None:
        width = H
    return {"embed": embed, "attention": attention, "classifier": classifier, "width": width}


def _torchmil(reader: _Reader, embed: Part | None) -> dict[str, Any]:
    """Read torchmil's ABMIL and CLAM_SB; `feat_ext` is a part of one's own, given as embed."""
    if embed is not None:  # its weights are in the part that is given
        reader.read |= {name for name in reader.weights if name.startswith("feat_ext.")}
    held = ".module" if reader.has("pool.fc1.module") else ""
    H = reader.take(f"pool.fc1{held}.weight", 2).shape[1]
    gate = f"pool.fc_gated{held}" if reader.has(f"pool.fc_gated{held}") else None
    attention = reader.attention(f"pool.fc1{held}", "pool.fc2", gate, H)
    classifier = reader.linear(f"classifier{held}", H)
    return {
        "embed": embed, "attention": attention, "classifier": classifier,
        "width": H if embed is None else None,
    }  # fmt: skip


_TOLD: dict[str, Sequence[str]] = {
    "CLAM": ("attention_net.0.weight",),
    "torchmil": ("pool.fc1.module.weight", "pool.fc1.weight"),
    "AttentionDeepMIL": ("attention.0.weight", "attention_V.0.weight"),
}
_MAKERS: dict[str, Callable[[_Reader, Part | None], dict[str, Any]]] = {
    "CLAM": _clam,
    "torchmil": _torchmil,
    "AttentionDeepMIL": _deep_mil,
}


def _has(weights: Weights, keys: Sequence[str]) -> bool:
    return any(key in weights for key in keys)
