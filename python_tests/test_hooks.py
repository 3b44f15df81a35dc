"""`fae.capture`: what a module of one's own computes, erased, is what erasing it by hand gives."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from torch import nn

import fastattnerase as fae

TOKENS = torch.tensor([[3, 9, 4, 7, 1], [5, 2, 8, 0, 0], [6, 0, 0, 0, 0]])  # [B, N], 0 is padding
MORE = torch.tensor([[2, 2, 9], [1, 4, 0]])


class Classifier(nn.Module):
    """Additive attention over a bidirectional GRU, as it is written by hand."""

    def __init__(self, head):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.encoder = nn.GRU(6, 4, batch_first=True, bidirectional=True)
        self.inner = nn.Sequential(nn.Linear(8, 5), nn.Tanh())
        self.score = nn.Linear(5, 1)
        self.drop = nn.Dropout(0.5)
        self.classify = head

    def attend(self, h, e, keep):
        """Logits [B, C] from states [B, N, D], scores [B, N] and what is kept [B, N]."""
        weights = e.masked_fill(~keep, -torch.inf).softmax(1).nan_to_num(0)
        return self.classify(self.drop((weights[..., None] * h).sum(1)))

    def forward(self, tokens, keep=None):
        h, _ = self.encoder(self.embed(tokens))
        e = self.score(self.inner(h)).squeeze(-1)
        return self.attend(h, e, tokens != 0 if keep is None else keep)


PLACES = {
    "values": ("encoder", lambda output: output[0]),
    "scores": "score",
    "head": "classify",
    "mask": lambda tokens: tokens != 0,
}


def classifier(layers=1):
    """A model whose attention is uneven and whose decisions hang on the items."""
    torch.manual_seed(5)
    model = Classifier(nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)))
    if layers == 1:
        model.classify = nn.Linear(8, 3)
    with torch.no_grad():
        model.score.weight *= 4
        model.embed.weight *= 2
        for parameter in model.classify.parameters():
            parameter *= 4 if parameter.ndim == 2 else 0.1
    return model.double().eval()


def captured_batch(model, **changes):
    with fae.capture(model, **(PLACES | changes)) as captured:
        model(TOKENS)
        model(MORE)
    return captured.batch()


def by_hand(model):
    """States, scores and what is kept of each instance, from the model's own parts."""
    for tokens in (*TOKENS, *MORE):
        with torch.no_grad():
            h, _ = model.encoder(model.embed(tokens[None]))
            yield h, model.score(model.inner(h)).squeeze(-1), (tokens != 0)[None]


def decision(model, h, e, keep, erased):
    keep = keep.clone()
    keep[0, list(erased)] = False
    with torch.no_grad():
        return int(model.attend(h, e, keep).argmax())


@pytest.mark.parametrize("layers", [1, 2])
def test_erasing_what_was_captured_is_erasing_in_the_model(layers):
    """Brute force: the model's own attention over what is left, for every prefix of every order."""
    model = classifier(layers)
    batch = captured_batch(model)
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 0, 1, 2, 0, 1]
    rankings = ("attention", "gradient", "product", "random")
    result = fae.sweep(batch, rankings, orders=True, curves=("decision", "logits"))
    flipped = 0
    for b, (h, e, keep) in enumerate(by_hand(model)):
        n, begin = int(keep.sum()), int(batch.offsets[b])
        label = decision(model, h, e, keep, ())
        assert int(result.prefixes.label[b]) == label
        point = int(result.prefixes.curve_offsets[b])
        torch.testing.assert_close(
            result.prefixes.curves["logits"][0, point], model.attend(h, e, keep)[0].detach()
        )
        for row in range(len(rankings)):
            order = result.prefixes.order[row, begin : begin + n].tolist()
            found = [decision(model, h, e, keep, order[:k]) for k in range(n + 1)]
            curve = result.prefixes.curves["decision"][row, point : point + n + 1]
            assert curve.tolist() == found
            first = next((k for k in range(1, n + 1) if found[k] != label), -1)
            assert int(result.prefixes.first_flip[row, b]) == first
            flipped += first > 0
        for i in range(n):
            alone = decision(model, h, e, keep, [i])
            assert bool(result.single.flip[begin + i]) == (alone != label)
        if layers == 1:
            sets = (
                len(erased)
                for k in range(1, n + 1)
                for erased in itertools.combinations(range(n), k)
                if decision(model, h, e, keep, erased) != label
            )
            assert int(result.minimal.size[b]) == next(sets, -1)
    assert flipped > 4
    assert (result.minimal is None) == (layers == 2)


def test_calls_add_up_and_can_be_forgotten():
    model = classifier()
    with fae.capture(model, **PLACES) as captured:
        assert len(captured) == 0
        model(TOKENS)
        assert len(captured.batch()) == len(captured) == 3
        model(MORE)
        assert repr(captured) == "Capture(2 calls, 5 instances, 14 items)"
        whole = captured.batch(ids=torch.arange(10, 15))
        captured.clear()
        model(MORE)
        assert torch.equal(captured.batch().values, whole[3:].values)
    assert whole.ids.tolist() == [10, 11, 12, 13, 14]
    assert whole.to_padded(torch.ones(14)).shape == (5, 5)
    model(TOKENS)  # after the block nothing is collected
    assert len(captured) == 2


def test_a_head_that_uses_rows_counts_over_all_calls():
    model, rows = classifier(), []

    def head(pooled, instance):
        rows.extend(instance.tolist())
        return model.classify(pooled)

    fae.erase_prefixes(captured_batch(model, head=head), "attention")
    assert set(rows) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": "keep"},
        {"mask": None, "lengths": lambda tokens, keep: keep.sum(1)},
        {"mask": lambda tokens, keep: keep.long()},
    ],
)
def test_masks_and_lengths_by_name_and_by_function(changes):
    model = classifier()
    with fae.capture(model, **(PLACES | changes)) as captured, torch.inference_mode():
        model(TOKENS, keep=TOKENS != 0)
        model(TOKENS, TOKENS != 0)
    batch = captured.batch()
    assert batch.lengths.tolist() == [5, 3, 1] * 2
    assert torch.equal(batch.values, captured_batch(model).values[[*range(9), *range(9)]])
    assert fae.sweep(batch).minimal.size.shape == (6,)


def test_a_compiled_model_is_captured_as_it_runs():
    model = classifier()
    compiled = torch.compile(model, backend="eager")
    values = (model.encoder, lambda output: output[0])
    places = {"values": values, "scores": model.score, "head": model.classify}
    with torch.no_grad(), fae.capture(compiled, **places, mask="keep") as captured:
        compiled(TOKENS, TOKENS != 0)
    assert torch.equal(captured.batch().values, captured_batch(model).values[:9])


def test_modules_inputs_weights_and_pairs():
    """Every other way to say where something is gives the same batch."""
    model = classifier()
    expected = captured_batch(model)
    pair = (model.classify.weight, model.classify.bias)
    for changes in (
        {"values": (model.encoder, lambda output: output[0]), "scores": model.score},
        {"values": ("inner", lambda inputs, output: inputs[0])},
        {"values": ("inner.0", lambda inputs, output: inputs[0]), "head": model.classify},
        {"head": pair},
        {"scores": ("score", lambda output: output.transpose(1, 2))},  # [B, 1, N]
        {"scores": None, "weights": ("score", lambda e: e.exp())},
    ):
        batch = captured_batch(model, **changes)
        assert torch.equal(batch.values, expected.values)
        assert torch.equal(batch.head_weight, expected.head_weight)
        sizes = [fae.minimal_flip_set(x).size for x in (batch, expected)]
        assert torch.equal(*sizes)


class Bag(nn.Module):
    """Attention over one document without an axis for the batch, or over packed ones."""

    def __init__(self):
        super().__init__()
        self.score, self.classify = nn.Linear(4, 1), nn.Linear(4, 2)

    def forward(self, h, lengths=None):
        e = self.score(h)
        parts = zip(h.split(lengths or [len(h)]), e.split(lengths or [len(h)]), strict=True)
        pooled = torch.stack([(a.softmax(0) * x).sum(0) for x, a in parts])
        return {"logits": self.classify(pooled), "states": h}


def test_one_instance_a_call_and_packed_ones():
    torch.manual_seed(0)
    model, h = Bag(), torch.randn(5, 4)
    states = ("", lambda output: output["states"])  # of the model itself
    with fae.capture(model, values=states, scores="score", head="classify") as one_by_one:
        model(h[:2])
        model(h[2:])
    with fae.capture(
        model, values=states, scores="score", head="classify",
        lengths=lambda h, lengths: torch.tensor(lengths),
    ) as packed:  # fmt: skip
        model(h, [2, 3])
    for batch in (one_by_one.batch(), packed.batch()):
        assert batch.offsets.tolist() == [0, 2, 5]
        assert batch.positions.tolist() == [0, 1, 0, 1, 2]
        assert torch.equal(batch.values, h)


@pytest.mark.parametrize("given", ["weights", "scores"])
def test_padding_that_no_mask_names_is_refused(given):
    """Weights after a masked softmax give the model's logits, with padding as items of weight 0."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.e, self.a = nn.Embedding(10, 4), nn.Identity(), nn.Softmax(1)
            self.z = nn.Linear(4, 2)

        def forward(self, tokens):
            h = self.embed(tokens)
            weights = self.a(self.e(h.sum(2).masked_fill(tokens == 0, -torch.inf)))
            return self.z((weights[..., None] * h).sum(1))

    torch.manual_seed(0)
    model = Masked().eval()
    places = {"values": "embed", given: "a" if given == "weights" else "e", "head": "z"}
    for tokens in (TOKENS, TOKENS.flip(1)):
        with fae.capture(model, **places) as captured:
            model(tokens)
        with pytest.raises(
            ValueError, match=r"mask: given neither .* where 2 of 3 instances begin"
        ):
            captured.batch()
        with fae.capture(model, **places, check=False) as captured:
            model(tokens)
        assert captured.batch().num_items == 15
        with fae.capture(model, **places, mask=lambda tokens: tokens != 0) as captured:
            model(tokens)
        assert captured.batch().num_items == 9


class Heads(nn.Module):
    """Two attention heads side by side."""

    def __init__(self):
        super().__init__()
        self.states, self.score, self.classify = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 3)

    def forward(self, x):
        h = self.states(x)
        weights = self.score(h).softmax(1)  # [B, N, H]
        pooled = torch.einsum("bnh,bnhd->bhd", weights, h.unflatten(-1, (2, 3)))
        return self.classify(pooled.flatten(1))


def test_several_attention_heads():
    torch.manual_seed(0)
    model, x = Heads(), torch.randn(3, 4, 4)
    values = ("states", lambda output: output.unflatten(-1, (2, 3)))
    with fae.capture(model, values=values, scores="score", head="classify") as captured:
        logits = model(x)
    batch = captured.batch()
    assert (batch.num_heads, batch.num_items) == (2, 12)
    result = fae.erase_prefixes(batch, "attention", logits=True)
    torch.testing.assert_close(result.logits, logits.detach())


class Queried(nn.Module):
    """One learned query of torch's own attention over words, as many classifiers pool."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8, padding_idx=0)
        self.query = nn.Parameter(torch.randn(1, 1, 8))
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)
        self.classify = nn.Linear(8, 3)

    def forward(self, tokens):  # [B, N], 0 is padding
        h = self.embed(tokens)
        query = self.query.expand(len(tokens), -1, -1)
        pooled, _ = self.mha(query, h, h, key_padding_mask=tokens == 0, average_attn_weights=False)
        return self.classify(pooled.squeeze(1))


def test_multihead_attention_of_torch_with_a_function_as_head():
    torch.manual_seed(0)
    model, tokens = Queried().eval(), torch.tensor([[4, 9, 2, 7], [5, 3, 0, 0]])
    mha = model.mha

    def values(inputs, output):
        projected = inputs[1] @ mha.in_proj_weight[16:].T + mha.in_proj_bias[16:]  # [B, N, 8]
        return projected.unflatten(-1, (2, 4))

    with fae.capture(
        model,
        values=("mha", values),
        weights=("mha", lambda output: output[1].squeeze(2).transpose(1, 2)),  # [B, N, H]
        head=lambda pooled: model.classify(mha.out_proj(pooled.flatten(1))),
        mask=lambda tokens: tokens != 0,
    ) as captured:
        logits = model(tokens)
    batch = captured.batch()
    assert (batch.num_heads, batch.num_items) == (2, 6)
    found = fae.erase_prefixes(batch, "attention", logits=True)
    torch.testing.assert_close(found.logits, logits)


def test_what_is_written_into_later_is_kept_as_it_was():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.h, self.e, self.z = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 2)

        def forward(self, x):
            h = self.h(x)
            e = self.e(h).squeeze(-1)
            logits = self.z((e.softmax(1)[..., None] * h).sum(1))
            e.fill_(7)
            h.zero_()
            return logits

    torch.manual_seed(0)
    model = InPlace()
    with torch.no_grad(), fae.capture(model, values="h", scores="e", head="z") as captured:
        model(torch.randn(2, 3, 4))
    batch = captured.batch()
    assert batch.values.abs().min() > 0
    assert not (batch.scores == 7).any()


# --- errors ---------------------------------------------------------------------------------------


def hooks_of(model):
    return [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]


@pytest.mark.parametrize(
    ("error", "changes", "message"),
    [
        (
            ValueError,
            {"values": "encodr"},
            "values: given 'encodr', needed a submodule of Classifier, such as 'encoder'",
        ),
        (ValueError, {"head": "fc"}, "head: given 'fc', needed a submodule of Classifier"),
        (
            ValueError,
            {"scores": nn.Linear(5, 1)},
            "scores: given Linear, needed a submodule of Classifier, which that is not",
        ),
        (TypeError, {"values": torch.ones(2)}, "values: given Tensor, needed a submodule, its"),
        (
            TypeError,
            {"head": 3},
            "head: given int, needed a submodule, its dotted name, a function",
        ),
        (ValueError, {"weights": "score"}, "scores, weights: given both, needed exactly one"),
        (ValueError, {"scores": None}, "scores, weights: given neither, needed exactly one"),
        (
            TypeError,
            {"values": "encoder"},
            "values: given a tuple of 2 from 'encoder' in call 0 of the model, needed a tensor: "
            "values=(…, lambda output: output[…])",
        ),
        (
            ValueError,
            {"scores": "drop"},
            "scores: given [3, 8] from 'drop', needed [3, 5], as values [3, 5, 8] from 'encoder'",
        ),
        (
            ValueError,
            {"values": ("score", lambda output: None)},
            "values: given 'score', which did not run in call 0 of the model",
        ),
        (
            ValueError,
            {"head": "embed"},
            "head: given [3, 5, 6] from 'embed' in call 0 of the model, needed logits [3, C]",
        ),
        (
            ValueError,
            {"mask": "attention_mask"},
            "mask: given 'attention_mask', needed an argument of Classifier, tokens, keep, or",
        ),
        (ValueError, {"mask": lambda tokens: tokens[:2] != 0}, "mask: given [2, 5], needed [3, 5]"),
        (
            ValueError,
            {"head": nn.Linear(7, 3)},
            "head: given Linear, needed a submodule of Classifier, which that is not, or a "
            "function, head=lambda pooled: …",
        ),
        (
            ValueError,
            {"mask": None},
            "those of what was captured, needed the same. Missing may be mask= or lengths=",
        ),
    ],
)
def test_errors_name_the_argument_and_the_submodule(error, changes, message):
    model = classifier()

    def run():
        with fae.capture(model, **(PLACES | changes)) as captured:
            model(TOKENS)
        captured.batch()

    with pytest.raises(error, match=re.escape(message)):
        run()
    assert hooks_of(model) == []


def test_a_model_that_was_not_called():
    model = classifier()
    with fae.capture(model, **PLACES) as captured:
        model.forward(TOKENS)
        with pytest.raises(ValueError, match=r"model: given Classifier, which was not called"):
            captured.batch()
    assert hooks_of(model) == []


def test_a_submodule_that_runs_twice_is_told_or_passed_over():
    class Pair(Bag):
        def forward(self, h, other):
            self.score(other)
            return super().forward(h)

    torch.manual_seed(0)
    model, h, other = Pair(), torch.randn(3, 4), torch.randn(2, 4)
    places = {"values": ("", lambda output: output["states"]), "head": "classify"}
    with (
        pytest.raises(ValueError, match=r"scores: given a second time from 'score' in call 0"),
        fae.capture(model, scores="score", **places),
    ):
        model(h, other)
    assert hooks_of(model) == []
    third = ("score", lambda inputs, output: output if inputs[0] is h else None)
    with fae.capture(model, scores=third, **places) as captured:
        model(h, other)
    assert len(captured.batch()) == 1


def test_dropout_between_is_noticed_and_may_be_taken_as_it_is():
    model = classifier().train()
    with pytest.raises(ValueError, match=r"model\.eval\(\) where there is dropout"):
        captured_batch(model)
    assert len(captured_batch(model, check=False)) == 5
    assert model.training


def test_a_call_that_fails_leaves_nothing_behind():
    model = classifier()
    with fae.capture(model, **PLACES) as captured:
        with pytest.raises(RuntimeError):
            model(TOKENS, keep=torch.ones(2, 2, dtype=torch.bool))
        model(TOKENS)
    assert len(captured.batch()) == 3
