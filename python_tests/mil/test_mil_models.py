"""Adapters against forward passes of the published models on the patches that are left."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from published import MODELS, Clam, DeepMIL, ImageMIL, spread
from safetensors.torch import save_file
from torch import Tensor, nn

import fastattnerase as fae
from fastattnerase import mil

D, N = 7, 40


def model_and_bag(name: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(seed)
    return spread(MODELS[name](D)), torch.randn(N, D, dtype=torch.float64)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_decisions_of_state_dicts(tmp_path: Path, name: str, suffix: str) -> None:
    module, x = model_and_bag(name)
    path = tmp_path / f"model{suffix}"
    if suffix == ".pt":
        # As trainers keep it, spread over devices.
        weights = {f"module.{key}": value for key, value in module.state_dict().items()}
        torch.save({"epoch": 3, "state_dict": weights}, path)
    else:
        save_file(module.state_dict(), path)
    model = mil.read_model(path)
    assert model.name == ("CLAM" if name.startswith("clam") else "AttentionDeepMIL")
    assert model.width == D
    found = fae.erase_prefixes(model.batch(mil.Bag.of(x)), (), logits=True).logits
    assert found is not None
    with torch.no_grad():
        torch.testing.assert_close(found[0], module.logits(x), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(model.logits(x), module.logits(x), rtol=1e-9, atol=1e-9)
    assert model.classes == len(found[0])


@pytest.mark.parametrize("name", MODELS)
def test_erasing_at_the_pool_is_dropping_patches(name: str) -> None:
    """Every prefix of a random order, in both directions, and every patch alone and left out."""
    module, x = model_and_bag(name, 1)
    model = _adapted(name, module)
    batch = model.batch(mil.Bag.of(x), rows=9)
    order = torch.randperm(N)
    curves = ("logits", "decision")
    erased = fae.erase_prefixes(batch, [order], curves=curves)
    kept = fae.erase_prefixes(batch, [order], curves=curves, direction="keep")
    with torch.no_grad():
        for k in range(N):
            one = module.logits(x[order[k:]])
            assert int(erased.curves["decision"][0, k]) == int(one.argmax())
            torch.testing.assert_close(erased.curves["logits"][0, k], one, rtol=1e-6, atol=1e-6)
            one = module.logits(x[order[: k + 1]])
            assert int(kept.curves["decision"][0, k + 1]) == int(one.argmax())
            torch.testing.assert_close(kept.curves["logits"][0, k + 1], one, rtol=1e-6, atol=1e-6)
        label = int(module.logits(x).argmax())
        drops = fae.erase_each(batch).label_prob_drop
        whole = module.logits(x).softmax(0)[label]
        for i in range(N):
            rest = torch.cat([x[:i], x[i + 1 :]])
            drop = whole - module.logits(rest).softmax(0)[label]
            assert float(drops[i]) == pytest.approx(float(drop), abs=1e-6)


def _adapted(name: str, module: nn.Module) -> mil.PoolModel:
    """The module by its parts."""
    if isinstance(module, Clam):
        return mil.PoolModel(
            embed=module.attention_net[:-1],
            attention=module.attention_net[-1],
            classifier=module.classifiers,
        )
    assert isinstance(module, DeepMIL)
    attention: str | Callable[[Tensor], Tensor] = "attention"
    if module.gated:

        def attention(h: Tensor) -> Tensor:
            return module.attention_w(module.attention_V(h) * module.attention_U(h))

    return mil.PoolModel.from_module(
        module, embed="feature_extractor_part2", attention=attention, classifier="classifier"
    )


def test_greedy_is_a_forward_a_candidate() -> None:
    """Removal of the patch that leaves the least margin, each candidate tried by the model."""
    for name in ("abmil", "clam-sb"):
        module, x = model_and_bag(name, 2)
        batch = _adapted(name, module).batch(mil.Bag.of(x))
        found = fae.greedy_order(batch, steps=8).order[:8].tolist()
        left, taken = list(range(N)), []
        with torch.no_grad():
            label = int(module.logits(x).argmax())
            for _ in range(8):
                margins = []
                for i in left:
                    z = module.logits(x[[j for j in left if j != i]])
                    margins.append(float(z[label] - z[torch.arange(len(z)) != label].max()))
                best = left[int(torch.tensor(margins).argmin())]
                taken.append(best)
                left.remove(best)
        assert found == taken


def test_images_through_the_convolutions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = ImageMIL().eval()
    torch.save(module.state_dict(), tmp_path / "model.pth")
    x = torch.rand(5, 784)
    model = mil.read_model(tmp_path / "model.pth")
    assert model.width == 784
    found = fae.erase_prefixes(model.batch(mil.Bag.of(x)), (), logits=True).logits
    assert found is not None
    with torch.no_grad():
        torch.testing.assert_close(found[0], module.logits(x), rtol=1e-5, atol=1e-6)


def test_a_class_reads_its_own_branch_alone() -> None:
    """In multi branch, a patch without weight in branch 0 leaves logit 0 where it is."""
    torch.manual_seed(0)
    scores = torch.tensor([[0.0, 0.0], [-torch.inf, 0.0]], dtype=torch.float64)
    model = mil.PoolModel(
        attention=lambda h: scores[: len(h)] if len(h) > 1 else scores[int(h[0, 0]) :][:1],
        classifier=[nn.Linear(2, 1).double(), nn.Linear(2, 1).double()],
    )
    model._tried = True
    bag = mil.PooledBag(
        "a", "a", scores, model._values(torch.tensor([[0.0, 1.0], [1.0, 3.0]]).double(), 2)
    )
    result = fae.erase_prefixes(
        model.batch(bag), [torch.tensor([1, 0])], curves=("logits",), logits=True
    )
    before, after = result.curves["logits"][0, :2]
    assert float(before[0]) == pytest.approx(float(after[0]), abs=1e-12)
    assert float(before[1]) != pytest.approx(float(after[1]), abs=1e-3)


def test_additive_pooling() -> None:
    """Attention averages what a network says of each patch."""
    torch.manual_seed(3)
    embed, score = nn.Linear(D, 5).double(), nn.Linear(5, 1).double()
    says = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    model = mil.PoolModel(embed=embed, attention=score, classifier=says, additive=True)
    x = torch.randn(N, D, dtype=torch.float64)
    order = torch.randperm(N)
    found = fae.erase_prefixes(model.batch(mil.Bag.of(x)), [order], curves=("logits",))
    with torch.no_grad():
        for k in range(N):
            h = embed(x[order[k:]])
            one = (score(h).softmax(0) * says(h)).sum(0)
            torch.testing.assert_close(found.curves["logits"][0, k], one, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.curves["logits"][0, 0], model.logits(x))
    assert fae.minimal_flip_set(model.batch(mil.Bag.of(x))).size.shape == (1,)


def test_another_classifier_is_called() -> None:
    torch.manual_seed(3)
    score = nn.Linear(D, 1).double()
    head = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    model = mil.PoolModel(attention=score, classifier=head)
    x = torch.randn(N, D, dtype=torch.float64)
    batch = model.batch(mil.Bag.of(x))
    assert batch.values.shape == (N, D)
    found = fae.sweep(batch, ["attention"], curves=("logits",), orders=True)
    assert found.minimal is None
    assert found.prefixes.order is not None
    order = found.prefixes.order[0]
    with torch.no_grad():
        for k in range(N):
            rest = x[order[k:]]
            one = head((score(rest).softmax(0) * rest).sum(0))
            torch.testing.assert_close(found.prefixes.curves["logits"][0, k], one)
        torch.testing.assert_close(model.logits(x), head((score(x).softmax(0) * x).sum(0)))
    assert "not linear" in model.assumes
    single = mil.PoolModel(attention=score, classifier=lambda v: v[:, :1].relu())
    assert fae.erase_prefixes(single.batch(mil.Bag.of(x)), ()).probabilities.shape == (1, 2)


def test_one_output_for_thresholds() -> None:
    torch.manual_seed(4)
    model = mil.PoolModel(attention=nn.Linear(D, 1), classifier=nn.Linear(D, 1), binary=False)
    assert model.classes == 1
    batch = model.batch(mil.Bag.of(torch.randn(N, D)))
    found = fae.cross_threshold(batch, ["attention"], threshold=-10.0)
    assert found.size is not None
    assert found.size.tolist() == [-1]


def test_several_bags_and_blocks_give_the_same() -> None:
    module, x = model_and_bag("clam-mb")
    model = _adapted("clam-mb", module)
    bags = [mil.Bag.of(x[:13], slide_id="a"), mil.Bag.of(x[13:], slide_id="b")]
    batch = model.batch(bags)
    assert batch.offsets.tolist() == [0, 13, 40]
    other = model.batch([model.pool(bag, rows=5) for bag in bags])
    assert other.scores is not None
    torch.testing.assert_close(batch.values, other.values)
    torch.testing.assert_close(batch.scores, other.scores)
    pooled = model.pool(bags[0])
    assert len(pooled) == 13
    assert torch.equal(pooled.take([3, 1]).scores, pooled.scores[[3, 1]])


def test_half_precision_is_widened(tmp_path: Path) -> None:
    torch.save({k: v.half() for k, v in DeepMIL(D).state_dict().items()}, tmp_path / "m.pt")
    pooled = mil.read_model(tmp_path / "m.pt").pool(mil.Bag.of(torch.randn(5, D)))
    assert pooled.scores.dtype == torch.float32


class Mixing(nn.Module):
    """An embedding that reads the whole bag."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def test_models_whose_patches_see_one_another_are_refused() -> None:
    model = mil.PoolModel(embed=Mixing(), attention=nn.Linear(D, 1), classifier=nn.Linear(D, 2))
    with pytest.raises(ValueError, match=r"embed: .*depend on other patches.*mil.ContextModel"):
        model.pool(mil.Bag.of(torch.randn(9, D)))
    model = mil.PoolModel(attention=lambda h: h.mean(0)[:1].expand(len(h)),
                          classifier=nn.Linear(D, 2))  # fmt: skip
    with pytest.raises(ValueError, match=r"attention: .*depend on other patches"):
        model.pool(mil.Bag.of(torch.randn(9, D)))


def test_context_models_have_two_ways_that_differ() -> None:
    torch.manual_seed(5)
    encode, score, classify = Mixing(), nn.Linear(D, 1).double(), nn.Linear(D, 2).double()

    def forward(x: Tensor) -> Tensor:
        h = encode(x)
        return classify((score(h).softmax(0) * h).sum(0))

    model = mil.ContextModel(forward, encode=encode, attention=score, classifier=classify)
    x = torch.randn(N, D, dtype=torch.float64)
    bag = mil.Bag.of(x)
    batch = model.erase_at_pool(bag)
    order = fae.rank(batch, "attention")
    at_pool = fae.erase_prefixes(batch, [order], curves=("logits",))
    dropped = model.drop_before_encoder(bag, order, range(N))
    with torch.no_grad():
        h = encode(x)
        for k in range(N):
            rest = h[order[k:]]
            pooled = classify((score(rest).softmax(0) * rest).sum(0))
            torch.testing.assert_close(at_pool.curves["logits"][0, k], pooled)
            left = x[order[k:].sort().values]
            torch.testing.assert_close(dropped.logits[k], forward(left))
    assert float((dropped.logits - at_pool.curves["logits"][0, :N]).abs().max()) > 0.01
    label = int(dropped.logits[0].argmax())
    assert dropped.label == label
    flips = [k for k in range(N) if int(dropped.logits[k].argmax()) != label]
    assert dropped.first_flip == (flips[0] if flips else -1)
    torch.testing.assert_close(dropped.label_prob, dropped.logits.softmax(1)[:, label])
    assert "drop_before_encoder" in model.assumes


def test_any_forward_drops_patches_and_has_no_pool() -> None:
    model = mil.ContextModel(lambda x: x.mean(0)[None, :2])
    bag = mil.Bag.of(torch.randn(6, D))
    assert model.drop_before_encoder(bag, torch.arange(6), [0, 3]).logits.shape == (2, 2)
    with pytest.raises(ValueError, match="without the parts of a pool, needed encode"):
        model.erase_at_pool(bag)
    with pytest.raises(ValueError, match="given some, needed all three or none"):
        mil.ContextModel(lambda x: x, encode=lambda x: x)
    with pytest.raises(ValueError, match=r"order: .*needed each of 6 patches once"):
        model.drop_before_encoder(bag, torch.zeros(6, dtype=torch.int64), [0])
    with pytest.raises(ValueError, match=r"erased: .*needed numbers 0 to 5"):
        model.drop_before_encoder(bag, torch.arange(6), [6])
    one = mil.ContextModel(lambda x: x.sum())
    assert one.drop_before_encoder(bag, torch.arange(6), [0]).logits.shape == (1, 2)


def refused(folder: Path, weights: object, told: str, **options: object) -> None:
    torch.save(weights, folder / "model.pt")
    with pytest.raises(mil.BagError, match=re.escape(told)) as caught:
        mil.read_model(folder / "model.pt", **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{folder / 'model.pt'}: given ")
    assert "\n" not in str(caught.value)


def test_weights_that_are_no_model_get_one_line(tmp_path: Path) -> None:
    told = (
        "given weights a.weight, …, needed the layout of AttentionDeepMIL, CLAM or torchmil; a "
        "module of your own is mil.PoolModel"
    )
    refused(tmp_path, {"a.weight": torch.zeros(1)}, told)
    refused(tmp_path, nn.Linear(2, 2), "given a pickle of other objects than tensors")
    refused(tmp_path, [1], "given list, needed a state dict of tensors")
    refused(tmp_path, Clam(D).state_dict(), "needed the layout of torchmil", layout="torchmil")
    weights = Clam(D).state_dict() | {"classifiers.weight": torch.zeros(2, 5)}
    refused(tmp_path, weights, "given classifiers.weight [2, 5] with a bias [2], needed [2, 6]")
    weights = DeepMIL(D).state_dict()
    refused(tmp_path, weights | {"extra.weight": torch.zeros(1)},
            "given extra.weight, which AttentionDeepMIL's layout has not")  # fmt: skip
    del weights["classifier.0.weight"]
    refused(tmp_path, weights, "given weights without classifier.0.weight, needed it")
    with pytest.raises(mil.BagError, match="given no file, needed a model's weights"):
        mil.read_model(tmp_path / "absent.pt")
    with pytest.raises(ValueError, match="layout: given 'x', needed AttentionDeepMIL, CLAM or"):
        mil.read_model(tmp_path / "model.pt", layout="x")  # type: ignore[arg-type]


def test_parts_that_do_not_fit_are_named() -> None:
    bag = mil.Bag.of(torch.randn(9, D), slide_id="slide")
    linear = nn.Linear(D, 2)
    with pytest.raises(TypeError, match="attention: given int, needed a module or function"):
        mil.PoolModel(attention=3, classifier=linear)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model: given parameters on meta, needed on cpu"):
        mil.PoolModel(attention=nn.Linear(D, 1, device="meta"), classifier=linear)
    with pytest.raises(ValueError, match=r"attention: given .8, 3, 1., needed scores"):
        mil.PoolModel(attention=lambda h: torch.zeros(len(h), 3, 1), classifier=linear).pool(bag)
    with pytest.raises(ValueError, match="classifier: given a list of 2, needed a linear layer"):
        mil.PoolModel(attention=linear, classifier=[linear, linear])
    with pytest.raises(ValueError, match=r"embed: given .*, needed .8, H."):
        mil.PoolModel(embed=lambda x: x[0], attention=nn.Linear(D, 1), classifier=linear).pool(bag)
    with pytest.raises(
        ValueError, match="attention: given 'b', needed a submodule of ModuleDict: a"
    ):
        mil.PoolModel.from_module(nn.ModuleDict({"a": linear}), attention="b", classifier="a")
    model = mil.PoolModel(attention=nn.Linear(D, 1), classifier=linear, width=5, name="M")
    with pytest.raises(mil.BagError, match="slide: given D = 7, needed 5 as M reads"):
        model.pool(bag)
    with pytest.raises(ValueError, match="bags: given none, needed one or more"):
        model.batch([])
