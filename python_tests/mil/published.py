"""Published pools from their definitions: the forward passes that the adapters are compared with.

Names of submodules are those of the published code, so that state dicts have its layout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DeepMIL(nn.Module):
    """Ilse et al. 2018 as in AttentionDeepMIL, for vectors: gated or not, any branches."""

    def __init__(self, D: int, H: int = 6, gated: bool = False, branches: int = 1) -> None:
        super().__init__()
        self.gated = gated
        self.feature_extractor_part2 = nn.Sequential(nn.Linear(D, H), nn.ReLU())
        if gated:
            self.attention_V = nn.Sequential(nn.Linear(H, 5), nn.Tanh())
            self.attention_U = nn.Sequential(nn.Linear(H, 5), nn.Sigmoid())
            self.attention_w = nn.Linear(5, branches)
        else:
            self.attention = nn.Sequential(nn.Linear(H, 5), nn.Tanh(), nn.Linear(5, branches))
        self.classifier = nn.Sequential(nn.Linear(H * branches, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """The probability of class 1 of a bag [n, D]."""
        h = self.feature_extractor_part2(x)
        if self.gated:
            a = self.attention_w(self.attention_V(h) * self.attention_U(h))
        else:
            a = self.attention(h)
        a = torch.softmax(a.T, dim=1)  # [branches, n]
        return self.classifier((a @ h).reshape(1, -1))[0, 0]

    def logits(self, x: Tensor) -> Tensor:
        p = self(x)
        return torch.stack([torch.zeros_like(p), p.logit()])


class ImageMIL(nn.Module):
    """AttentionDeepMIL's network of digits, images [n, 784]."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_extractor_part1 = nn.Sequential(
            nn.Conv2d(1, 20, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2, stride=2),
            nn.Conv2d(20, 50, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2, stride=2),
        )  # fmt: skip
        self.feature_extractor_part2 = nn.Sequential(nn.Linear(50 * 4 * 4, 500), nn.ReLU())
        self.attention = nn.Sequential(nn.Linear(500, 128), nn.Tanh(), nn.Linear(128, 1))
        self.classifier = nn.Sequential(nn.Linear(500, 1), nn.Sigmoid())

    def logits(self, x: Tensor) -> Tensor:
        h = self.feature_extractor_part1(x.view(-1, 1, 28, 28)).view(-1, 50 * 4 * 4)
        h = self.feature_extractor_part2(h)
        z = self.classifier[0]((self.attention(h).softmax(0) * h).sum(0))[0]
        return torch.stack([torch.zeros_like(z), z])


class _Attention(nn.Module):
    """CLAM's Attn_Net."""

    def __init__(self, L: int, D: int, dropout: bool, branches: int) -> None:
        super().__init__()
        parts = [nn.Linear(L, D), nn.Tanh()]
        if dropout:
            parts.append(nn.Dropout(0.25))
        self.module = nn.Sequential(*parts, nn.Linear(D, branches))

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)


class _GatedAttention(nn.Module):
    """CLAM's Attn_Net_Gated."""

    def __init__(self, L: int, D: int, dropout: bool, branches: int) -> None:
        super().__init__()
        more = [nn.Dropout(0.25)] if dropout else []
        self.attention_a = nn.Sequential(nn.Linear(L, D), nn.Tanh(), *more)
        self.attention_b = nn.Sequential(nn.Linear(L, D), nn.Sigmoid(), *more)
        self.attention_c = nn.Linear(D, branches)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention_c(self.attention_a(x) * self.attention_b(x))


class Clam(nn.Module):
    """Lu et al. 2021, single branch, or multi branch where there is an attention a class."""

    def __init__(
        self, D: int, classes: int = 2, *, multi: bool = False, gated: bool = True,
        dropout: bool = True, H: int = 6,
    ) -> None:  # fmt: skip
        super().__init__()
        net = _GatedAttention if gated else _Attention
        self.attention_net = nn.Sequential(
            nn.Linear(D, H), nn.ReLU(), *([nn.Dropout(0.25)] if dropout else []),
            net(H, 4, dropout, classes if multi else 1),
        )  # fmt: skip
        self.multi = multi
        self.classifiers: nn.Module = (
            nn.ModuleList([nn.Linear(H, 1) for _ in range(classes)])
            if multi
            else nn.Linear(H, classes)
        )
        self.instance_classifiers = nn.ModuleList([nn.Linear(H, 2) for _ in range(classes)])

    def logits(self, x: Tensor) -> Tensor:
        """The logits of a bag [n, D]: [C]."""
        h = self.attention_net[:-1](x)
        a = torch.softmax(self.attention_net[-1](h).T, dim=1)  # [branches, n]
        m = a @ h  # [branches, H]
        if not self.multi:
            return self.classifiers(m)[0]
        return torch.stack([one(m[c])[0] for c, one in enumerate(self.classifiers)])


def spread(module: nn.Module, scale: float = 2.0) -> nn.Module:
    """Give a module random weights of some size, so that decisions change; in float64."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=scale / max(1, parameter.shape[-1]) ** 0.5)
    return module.double().eval()


MODELS = {
    "abmil": lambda D: DeepMIL(D),
    "abmil gated": lambda D: DeepMIL(D, gated=True),
    "abmil two branches": lambda D: DeepMIL(D, branches=2),
    "clam-sb": lambda D: Clam(D, 3),
    "clam-sb plain": lambda D: Clam(D, 2, gated=False, dropout=False),
    "clam-sb plain dropout": lambda D: Clam(D, 2, gated=False),
    "clam-mb": lambda D: Clam(D, 3, multi=True),
    "clam-mb plain": lambda D: Clam(D, 2, multi=True, gated=False, dropout=False),
}
