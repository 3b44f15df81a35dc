"""torchmil's own models beside the adapters, trained weights given as its state dicts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from published import spread
from torch import Tensor, nn
from torchmil.models import ABMIL, CLAM_SB, TransformerABMIL, TransMIL

import fastattnerase as fae
from fastattnerase import mil

D, N = 8, 30
MODELS = {
    "abmil": lambda: ABMIL(in_shape=(D,), att_dim=5),
    "abmil gated": lambda: ABMIL(in_shape=(D,), att_dim=5, gated=True),
    "clam": lambda: CLAM_SB(
        in_shape=(D,), att_dim=5, gated=True, inst_loss_name="BCEWithLogitsLoss"
    ),
    "relu": lambda: ABMIL(in_shape=(D,), att_dim=5, att_act="relu"),
    "gelu gated": lambda: ABMIL(in_shape=(D,), att_dim=5, att_act="gelu", gated=True),
}  # fmt: skip


def logit(module: nn.Module, x: Tensor) -> Tensor:
    """The logit of a bag [n, D]."""
    with torch.no_grad():
        return module(x[None])[0]


@pytest.mark.parametrize("name", MODELS)
def test_every_prefix_is_its_forward_on_the_patches_that_are_left(
    tmp_path: Path, name: str
) -> None:
    torch.manual_seed(0)
    module = spread(MODELS[name]())
    torch.save(module.state_dict(), tmp_path / "model.pt")
    activation = {"relu": "relu", "gelu gated": "gelu"}.get(name, "tanh")
    model = mil.read_model(tmp_path / "model.pt", activation=activation)  # type: ignore[arg-type]
    assert (model.name, model.width, model.classes) == ("torchmil", D, 2)
    x = torch.randn(N, D, dtype=torch.float64)
    batch = model.batch(mil.Bag.of(x))
    found = fae.erase_prefixes(batch, ["attention"], curves=("logits", "decision"), orders=True)
    assert found.order is not None
    for k in range(N):
        one = logit(module, x[found.order[0][k:]])
        assert float(found.curves["logits"][0, k, 1]) == pytest.approx(float(one), abs=1e-6)
        assert int(found.curves["decision"][0, k]) == int(one > 0)


def test_a_feature_extractor_of_ones_own_is_given(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = spread(ABMIL(in_shape=(D,), att_dim=5, feat_ext=nn.Linear(D, 6)))
    torch.save(module.state_dict(), tmp_path / "model.pt")
    with pytest.raises(mil.BagError, match=r"given feat_ext.bias, which torchmil's .*embed=…"):
        mil.read_model(tmp_path / "model.pt")
    model = mil.read_model(tmp_path / "model.pt", embed=module.feat_ext)
    x = torch.randn(N, D, dtype=torch.float64)
    found = fae.erase_prefixes(model.batch(mil.Bag.of(x)), (), logits=True).logits
    assert found is not None
    assert float(found[0, 1]) == pytest.approx(float(logit(module, x)), abs=1e-9)


def test_transformers_before_the_pool_have_two_ways() -> None:
    torch.manual_seed(0)
    module = TransformerABMIL(
        in_shape=(D,), pool_att_dim=5, transf_att_dim=8, transf_n_heads=2, transf_n_layers=1
    )
    module = spread(module, 1.0)
    x = torch.randn(N, D, dtype=torch.float64)

    def encode(x: Tensor) -> Tensor:
        return module.transformer_encoder(module.feat_ext(x[None]))[0]

    pool = module.pool
    model = mil.ContextModel(
        lambda x: module(x[None]),
        encode=encode,
        attention=nn.Sequential(pool.fc1, nn.Tanh(), pool.fc2),
        classifier=module.last_layer,
        name="TransformerABMIL",
    )
    bag = mil.Bag.of(x)
    batch = model.erase_at_pool(bag)
    order = fae.rank(batch, "attention")
    found = fae.erase_prefixes(batch, [order], curves=("logits",))
    dropped = model.drop_before_encoder(bag, order, range(N))
    for k in range(N):
        one = logit(module, x[order[k:].sort().values])
        assert float(dropped.logits[k, 1]) == pytest.approx(float(one), abs=1e-9)
    # With nothing erased both are the model, with more they part.
    assert float(found.curves["logits"][0, 0, 1]) == pytest.approx(float(dropped.logits[0, 1]))
    assert float((found.curves["logits"][0, :N, 1] - dropped.logits[:, 1]).abs().max()) > 0.001


def test_transmil_drops_patches_before_its_encoder() -> None:
    torch.manual_seed(0)
    module = TransMIL(in_shape=(D,), att_dim=16, n_layers=2, n_heads=2, n_landmarks=4).eval()
    x = torch.randn(9, D)
    model = mil.ContextModel(lambda x: module(x[None]), name="TransMIL")
    dropped = model.drop_before_encoder(mil.Bag.of(x), torch.arange(9), [0, 4])
    assert float(dropped.logits[1, 1]) == pytest.approx(float(logit(module, x[4:])), abs=1e-6)
    with pytest.raises(ValueError, match="erase_at_pool: given TransMIL without the parts"):
        model.erase_at_pool(mil.Bag.of(x))
