"""Patch flipping against loops that run the models anew on the patches that are left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from published import MODELS, Clam, DeepMIL, spread
from torch import Tensor, nn

import fastattnerase as fae
from fastattnerase import mil

D, N = 7, 130


def prepared(name: str, n: int = N) -> tuple[nn.Module, Tensor, fae.AttentionBatch]:
    """A model, a bag [n, D], and the engine's batch of it."""
    torch.manual_seed(len(name))
    module = spread(MODELS[name](D))
    x = torch.randn(n, D, dtype=torch.float64)
    if isinstance(module, Clam):
        model = mil.PoolModel(
            embed=module.attention_net[:-1],
            attention=module.attention_net[-1],
            classifier=module.classifiers,
        )
    else:
        assert isinstance(module, DeepMIL)
        model = mil.PoolModel.from_module(
            module,
            embed="feature_extractor_part2",
            attention="attention",
            classifier="classifier",
        )
    return module, x, model.batch(mil.Bag.of(x))


def flipped(module: nn.Module, x: Tensor, order: list[int]) -> tuple[list[Tensor], int]:
    """The field's loop: the model on what is left after each step, and the first flip."""
    with torch.no_grad():
        logits = [module.logits(x[order[k:]]) for k in range(len(order))]
    label = int(logits[0].argmax())
    flips = [k for k, z in enumerate(logits) if int(z.argmax()) != label]
    return logits, flips[0] if flips else len(order)


@pytest.mark.parametrize("name", ["abmil", "clam-mb", "clam-sb"])
def test_both_directions_are_the_model_run_anew(name: str) -> None:
    module, x, batch = prepared(name)
    names = ("attention", "single", "one_removed")
    found = mil.patch_flipping(batch, names)
    assert found.rankings == names
    scores = mil.patch_scores(batch, names)
    # 1 % of 130 patches by rank, halves up.
    assert found.erased.tolist() == [(26 * j + 10) // 20 for j in range(101)]
    for r, ranking in enumerate(names):
        order = sorted(range(N), key=lambda i: (-float(scores[ranking][i]), i))
        for direction, curve, first in (
            (order, found.most_first[r], found.first_flip[r, 0]),
            (order[::-1], found.least_first[r], found.least_first_flip[r, 0]),
        ):
            logits, flip = flipped(module, x, direction)
            label = int(logits[0].argmax())
            assert int(found.label[0]) == label
            for j, k in enumerate(found.erased.tolist()):
                if k < N:
                    p = float(logits[k].softmax(0)[label])
                    assert float(curve[j]) == pytest.approx(p, abs=1e-6)
            # With nothing left the bias decides, which no forward pass says.
            assert int(first) == flip or (flip == N and int(first) in (-1, N))


@pytest.mark.parametrize("name", ["abmil", "clam-mb"])
def test_scores_are_forward_passes(name: str) -> None:
    module, x, batch = prepared(name, 25)
    with torch.no_grad():
        whole = module.logits(x)
        label = int(whole.argmax())
        alone = [float(module.logits(x[i : i + 1]).softmax(0)[label]) for i in range(25)]
        rest = [
            float(whole.softmax(0)[label])
            - float(module.logits(torch.cat([x[:i], x[i + 1 :]])).softmax(0)[label])
            for i in range(25)
        ]
    assert mil.single_scores(batch).tolist() == pytest.approx(alone, abs=1e-6)
    assert mil.one_removed_scores(batch).tolist() == pytest.approx(rest, abs=1e-6)


def test_attention_of_multi_branch_is_that_of_the_decided_class() -> None:
    module, x, batch = prepared("clam-mb", 25)
    with torch.no_grad():
        a = module.attention_net(x)  # [n, C]
        label = int(module.logits(x).argmax())
    torch.testing.assert_close(mil.attention_scores(batch), a[:, label])
    # Of branches that every class reads, the mean of the weights.
    _, _, shared = prepared("abmil two branches", 25)
    assert shared.scores is not None
    torch.testing.assert_close(mil.attention_scores(shared), shared.scores.softmax(0).mean(1))


def test_shapley_scores_are_those_of_the_margin() -> None:
    """By the definition, over all orders of five patches."""
    import itertools

    module, x, batch = prepared("clam-sb", 5)
    with torch.no_grad():
        z = module.logits(x)
        top, second = z.argsort(descending=True)[:2].tolist()
        bias = module.classifiers.bias

        def margin(kept: tuple[int, ...]) -> float:
            of = module.logits(x[list(kept)]) if kept else bias
            return float(of[top] - of[second])

        value = [0.0] * 5
        for order in itertools.permutations(range(5)):
            for place, i in enumerate(order):
                value[i] += margin(order[: place + 1]) - margin(order[:place])
    assert mil.shapley_scores(batch).tolist() == pytest.approx([v / 120 for v in value], abs=1e-8)


def test_ties_erase_their_share_at_every_step() -> None:
    """95 % of the scores equal: steps by rank, not by percentiles of the scores."""
    n = 1000
    torch.manual_seed(0)
    scores = torch.zeros(n)
    scores[torch.randperm(n)[:50]] = torch.rand(50)
    batch = fae.AttentionBatch(
        torch.randn(n, 2), torch.tensor([0, n]), scores=scores, head_weight=torch.eye(2)
    )
    found = mil.patch_flipping(batch, ["attention"])
    assert found.erased.tolist() == list(range(0, n + 1, 10))
    order = sorted(range(n), key=lambda i: (-float(scores[i]), i))
    swept = fae.erase_prefixes(batch, [torch.tensor(order)], curves="label_prob")
    torch.testing.assert_close(found.most_first[0], swept.curves["label_prob"][0, ::10])


def test_the_decision_is_the_largest_logit_and_the_original_one_is_followed() -> None:
    """Three classes whose winner has a probability below one half, and which changes."""
    z = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.2, 0.0], [0.0, 0.0, 2.4], [0.3, 0.0, 0.0]])
    batch = fae.AttentionBatch(
        z, torch.tensor([0, 4]), weights=torch.tensor([0.4, 0.3, 0.2, 0.1]),
        head_weight=torch.eye(3),
    )  # fmt: skip
    found = mil.patch_flipping(batch, ["attention"])
    assert found.label.tolist() == [0]
    assert float(found.most_first[0, 0]) < 0.5
    assert found.first_flip.tolist() == [[1]]
    # Without the first patch class 1 leads: the curve goes on with class 0's probability.
    rest = (torch.tensor([0.3, 0.2, 0.1])[:, None] * z[1:]).sum(0) / 0.6
    assert int(rest.argmax()) == 1
    assert float(found.most_first[0, 1]) == pytest.approx(float(rest.softmax(0)[0]), abs=1e-6)
    # The other way the last patches go first; patch 0 alone is class 0, and nothing is the bias.
    assert found.least_first_flip.tolist() == [[-1]]


@pytest.mark.parametrize("width", [1, 8])
def test_the_last_patch_is_erased_at_every_width(width: int) -> None:
    values = torch.ones(1, width)
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 1]), scores=torch.zeros(1),
        head_weight=torch.stack([-values[0], values[0]]), head_bias=torch.tensor([1.0, 0.0]),
    )  # fmt: skip
    found = mil.patch_flipping(batch, ["attention"])
    assert found.erased.tolist() == [0, 1]
    # The empty slide is the head's bias.
    bias = torch.tensor([1.0, 0.0]).softmax(0)[1]
    assert float(found.most_first[0, 1]) == pytest.approx(float(bias), abs=1e-6)
    assert found.first_flip.tolist() == found.least_first_flip.tolist() == [[1]]


def test_unknown_names_are_refused_with_the_list() -> None:
    _, _, batch = prepared("abmil", 9)
    with pytest.raises(ValueError, match="'absolute'"):
        mil.patch_flipping(batch, ["absolute"])
    with pytest.raises(ValueError, match="needed attention, single, one_removed, shapley"):
        mil.patch_scores(batch, ["abs"])
    with pytest.raises(ValueError, match=r"scores\['mine'\]: given .3., needed one a patch"):
        mil.patch_flipping(batch, ["mine"], scores={"mine": torch.zeros(3)})


def test_several_slides_own_scores_and_measures() -> None:
    torch.manual_seed(0)
    lengths = [130, 40, 1]
    batch = fae.AttentionBatch.from_list(
        [torch.randn(n, 2).double() for n in lengths],
        scores=[torch.randn(n).double() for n in lengths],
        head_weight=torch.eye(2),
    )
    own = torch.randn(171)
    names = ("attention", "mine", "random")
    found = mil.patch_flipping(batch, names, scores={"mine": own}, random_orders=3)
    assert found.rankings == ("attention", "mine", "random[0]", "random[1]", "random[2]")
    assert found.point_offsets.tolist() == [0, 101, 142, 144]
    alone = mil.patch_flipping(batch[1], ["attention"])
    torch.testing.assert_close(alone.most_first[0], found.most_first[0, 101:142])
    torch.testing.assert_close(alone.least_first[0], found.least_first[0, 101:142])
    assert alone.least_first_flip[0, 0] == found.least_first_flip[0, 1]
    measured = found.measures()
    assert measured.rankings == ("attention", "mine", "random")
    p = found.swept.prefixes.curves["label_prob"][0, :131]
    kept = found.swept.prefixes.kept_curves["label_prob"][0, :131]
    assert float(measured["aopc_comprehensiveness", "every"].values[0, 0]) == pytest.approx(
        float(p[0] - p[1:].mean())
    )
    gain = float((kept[:-1].sum() - p[1:].sum()) / 130)
    assert float(measured["symmetric_relevance_gain"].values[0, 0]) == pytest.approx(gain)
    assert ("aopc_over_random", "every") in measured.found
    envelope = fae.envelope(batch, found.given, grid=101, random_orders=3)
    assert found.measures(envelope=envelope)["normalized_area"].values.shape == (3, 3)


def test_functions_of_ones_own_as_head() -> None:
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(12, 3)
    batch = fae.AttentionBatch(
        x, torch.tensor([0, 5, 12]), scores=torch.randn(12), head=lambda v, instance: head(v)
    )
    found = mil.patch_flipping(batch, ["attention", "single"])
    assert found.swept.minimal is None
    with torch.no_grad():
        p = head(x).softmax(1)
    label = found.label[batch.instance_of_item]
    torch.testing.assert_close(mil.single_scores(batch), p.gather(1, label[:, None])[:, 0])


# --- heat maps ------------------------------------------------------------------------------------


def small_map(side: float = 0) -> mil.HeatMap:
    coords = torch.tensor([[100, 50], [356, 50], [100, 306], [612, 306]])
    scores = {"attention": torch.tensor([0.1, 0.4, 0.2, 0.3]), "single": [1.0, np.nan, 0.0, -1.0]}
    return mil.HeatMap("slide", coords, scores, [False, True, False, True], side)


def test_patches_lie_on_a_grid_of_their_side() -> None:
    found = small_map()
    assert found.side == 256
    cells, at = found.cells(np.array([1.0, 2.0, 3.0, 4.0]))
    assert at.tolist() == [[0, 0], [0, 1], [1, 0], [1, 2]]
    np.testing.assert_array_equal(cells, [[1, 2, np.nan], [3, np.nan, 4]])
    # Of patches that share a square the largest is seen.
    cells, _ = small_map(1000).cells(np.array([1.0, 2.0, 3.0, 4.0]))
    assert cells.tolist() == [[4.0]]


def test_tables_of_patches(tmp_path: Path) -> None:
    lines = small_map().write_csv(tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "patch,x,y,attention,single,marked"
    assert lines[2].startswith("1,356,50,0.4000000059604645,nan,1")


def test_squares_for_viewers_of_slides(tmp_path: Path) -> None:
    content = json.loads(small_map(512).write_geojson(tmp_path / "a.geojson").read_text())
    assert content["type"] == "FeatureCollection"
    assert len(content["features"]) == 4
    first, second = content["features"][:2]
    assert first["geometry"] == {
        "type": "Polygon",
        "coordinates": [[[100, 50], [612, 50], [612, 562], [100, 562], [100, 50]]],
    }
    assert "classification" not in first["properties"]
    assert second["properties"]["classification"]["name"] == "smallest flipping set"
    assert second["properties"]["measurements"]["single"] is None
    assert second["properties"]["objectType"] == "detection"


def test_pictures(tmp_path: Path) -> None:
    path = small_map().write_png(tmp_path / "a.b.png", "attention")
    assert path.name == "a.b.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    figure = small_map().figure("single", "of a slide")
    axes = figure.axes[0]
    assert axes.get_title(loc="left") + axes.get_title() == "of a slide"
    drawn = np.asarray(axes.images[0].get_array().filled(np.nan))  # type: ignore[union-attr]
    # Percentiles within the slide; what has no score is last in order, and drawn so.
    assert drawn[0, 0] == 75
    [marked] = [c for c in axes.collections if hasattr(c, "get_segments")]
    # The squares of row 0, column 1 and of row 1, column 2: each has its four edges.
    edges = {tuple(map(tuple, edge.tolist())) for edge in marked.get_segments()}
    assert edges == {
        *(((0.5, y), (1.5, y)) for y in (-0.5, 0.5)), *(((x, -0.5), (x, 0.5)) for x in (0.5, 1.5)),
        *(((1.5, y), (2.5, y)) for y in (0.5, 1.5)), *(((x, 0.5), (x, 1.5)) for x in (1.5, 2.5)),
    }  # fmt: skip
    # Two neighbours are outlined together: six edges, none between them.
    both = mil.HeatMap("a", [[0, 0], [1, 0]], {"attention": [1, 2]}, [True, True])
    [marked] = [c for c in both.figure("attention").axes[0].collections if len(c.get_paths()) == 6]


def test_bad_maps() -> None:
    with pytest.raises(ValueError, match=r"coords: given .2., needed .n, 2. with n at least 1"):
        mil.HeatMap("a", [0, 1], {}, [])
    with pytest.raises(ValueError, match=r"attention: given .1., needed .2., one a patch"):
        mil.HeatMap("a", [[0, 1], [1, 1]], {"attention": [1.0]}, [True, False])
    assert mil.HeatMap("a", [[3, 3]], {}, [True]).side == 1
