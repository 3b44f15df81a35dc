"""Words as pieces: indices, cut texts, spans, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from huggingface.tiny import (
    FAMILIES,
    TEXT,
    bert_tokenizer,
    roberta_tokenizer,
    texts_of,
    tiny,
)

from fastattnerase.data import TokenisedText, encode
from fastattnerase.huggingface import Pieces, TransformerConfig
from fastattnerase.models import ModelError


@pytest.mark.parametrize("made", [bert_tokenizer, roberta_tokenizer])
def test_pieces_of_words_are_those_of_the_whole_text(made: object) -> None:
    tokenizer = made()  # type: ignore[operator]
    words = Pieces(tokenizer)
    indices = words.indices(TEXT)
    whole = tokenizer(TEXT, is_split_into_words=True)
    found = [piece for index in indices for piece in words.pieces(index)]
    assert [*words.before, *found, *words.after] == whole["input_ids"]
    of_word = [[i for i, w in enumerate(whole.word_ids()) if w == n] for n in range(len(TEXT))]
    assert [len(words.pieces(index)) for index in indices] == [len(own) for own in of_word]
    flat, counts = words.expanded(torch.tensor(indices))
    assert flat.tolist() == found
    assert counts.tolist() == [len(own) for own in of_word]


def test_indices_by_hand() -> None:
    words = Pieces(bert_tokenizer())
    given = ["Good", "films", "\u200b", "films", "unbelievably"]
    assert words.indices(given) == [5, 16, 17, 16, 18]
    assert words.pieces(16) == (7, 14)
    assert words.texts(18) == ["un", "##believ", "##ably"]
    assert words.pieces(words.masked(16)) == (4, 4)
    assert words.masked(5) == 4
    flat, counts = words.expanded(torch.tensor([17, 5, 16]))
    assert (flat.tolist(), counts.tolist()) == ([5, 7, 14], [0, 1, 2])
    assert words.fresh().indices(["unbelievably"]) == [16]


def test_texts_are_cut_after_the_pieces_that_the_model_takes() -> None:
    model = tiny("bert", TransformerConfig(max_pieces=6))
    spans = [((0, 1), (3, 5)), None, None]
    texts = [["a", "films", "unbelievably", "good", "film"], ["a"] * 4, ["a"] * 5]
    dataset = texts_of(model, texts, spans)
    assert model.limit == 4
    assert [document.tokens for document in dataset] == [
        ["a", "films", "unbelievably"], ["a"] * 4, ["a"] * 4,
    ]  # fmt: skip
    assert model.words.pieces(int(dataset[0].token_ids[2])) == (8,)  # "un" of three pieces
    assert dataset.truncated == 2
    assert dataset.spans_cut == 1
    assert dataset[0].spans is not None
    assert dataset[0].spans.tolist() == [[0, 1]]
    assert dataset[0].sentence_lengths.tolist() == [3]
    again = model.fit(dataset)
    assert [d.token_ids.tolist() for d in again] == [d.token_ids.tolist() for d in dataset]


def test_documents_that_were_encoded_before_get_the_same_indices() -> None:
    # "unbelievably" is cut to two of its three pieces before "bads" is first seen in a document.
    model, other = (tiny("bert", TransformerConfig(max_pieces=6)) for _ in range(2))
    texts = [
        TokenisedText(0, 0, [["films", "unbelievably"]], ["films"]),
        TokenisedText(1, 1, [["bads"]], ["bads"]),
    ]
    encoded = encode(texts, model.words)
    expected = [[16, 19], [18]]
    assert [document.token_ids.tolist() for document in model.fit(encoded)] == expected
    assert [document.token_ids.tolist() for document in other.fit(encoded)] == expected


def test_pieces_as_items_keep_spans() -> None:
    model = tiny("bert", TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [["a", "unbelievably", "films"]], [((1, 2), (2, 3))])
    assert dataset[0].tokens == ["a", "un", "##believ", "##ably", "film", "##s"]
    assert dataset[0].spans is not None
    assert dataset[0].spans.tolist() == [[1, 4], [4, 6]]
    assert model.fit(dataset)[0].token_ids.tolist() == dataset[0].token_ids.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_text_runs(family: str) -> None:
    model = tiny(family)
    long = texts_of(model, [["good"] * 200])
    assert long.truncated == 1
    [batch] = model.attention_batches(long)
    # The tokenizer's 40 or 60 pieces, two of them special.
    pieces = model.pieces_of(batch_of(long))
    assert pieces.tolist() == [58 if family == "roberta" else 38]
    assert len(batch) == 1


def batch_of(dataset: object) -> object:
    from fastattnerase.data.dataset import collate

    return collate(list(dataset))  # type: ignore[call-overload]


def test_positions_limit_a_text() -> None:
    model = tiny("roberta")
    model.words.tokenizer.model_max_length = 10**30
    # 96 positions, of which padding's index 1 and what is before it have none; two are special.
    assert model.limit == 96 - 2 - 2
    [_] = model.attention_batches(texts_of(model, [["a"] * 200]))


def test_bad_texts_and_tokenizers_get_one_line() -> None:
    model = tiny("bert")
    with pytest.raises(ModelError, match=r"document 0, '\[SEP\] \[MASK\]', of special tokens only"):
        texts_of(model, [["[SEP]", "[MASK]"]])
    texts_of(model, [["[SEP]", "good"], ["unknown"]])
    pair = TokenisedText(3, 0, [["a"]], ["a"], query=["who"])
    with pytest.raises(ModelError, match="given a second text for document 3"):
        model.fit(encode([pair], model.words))

    class Slow:
        is_fast = False

    with pytest.raises(ModelError, match="given Slow, a slow one, needed a fast one"):
        Pieces(Slow())
    bare = bert_tokenizer()
    bare.backend_tokenizer.post_processor = None
    with pytest.raises(ModelError, match="puts no token before a text"):
        Pieces(bare)
    blind = bert_tokenizer()
    blind.mask_token = None
    with pytest.raises(ModelError, match=r"erasure: given mask .* no mask token, needed remove"):
        Pieces(blind).masked(5)
    with pytest.raises(ModelError, match="max_pieces: given 2, needed at least 3"):
        TransformerConfig(max_pieces=2)
    with pytest.raises(ModelError, match="unit"):
        TransformerConfig(unit="letters")  # type: ignore[arg-type]


def test_a_word_beyond_the_limit_gives_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    model = tiny("roberta")
    assert len(model.words.pieces(model.words.indices(["zxqv" * 30])[0])) == 121  # 60 at most
    assert "sequence length" not in capfd.readouterr().err


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_fitting_again_changes_nothing(unit: str) -> None:
    model = tiny("bert", TransformerConfig(unit=unit, max_pieces=6))  # type: ignore[arg-type]
    once = texts_of(model, [["a", "films", "unbelievably", "good"], ["a"] * 4, ["a"] * 5])
    again = model.fit(once)
    assert (once.truncated, again.truncated) == (2, 2)
    assert [d.token_ids.tolist() for d in again] == [d.token_ids.tolist() for d in once]


def test_known_pieces_are_refused_as_words_are() -> None:
    """Of texts whose words are pieces already nothing is fitted, but what is refused is."""
    model = tiny("bert", TransformerConfig(unit="pieces"))
    with pytest.raises(ModelError, match=r"given document 1, '.SEP.', of special tokens only"):
        texts_of(model, [["a", "film"], ["[SEP]"]])
    dataset = texts_of(model, [["a", "film"]])
    second = replace(dataset[0], query_ids=np.array([5]), query_tokens=["good"])
    with pytest.raises(ModelError, match="given a second text for document 0"):
        model.fit(replace(dataset, documents=[second]))
