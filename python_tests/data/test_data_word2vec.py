"""Word vectors trained on the corpus, and the corpus's statistics."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastattnerase.data import (
    Corpus,
    DataConfig,
    DataError,
    Example,
    PreparedCorpus,
    Word2VecConfig,
    corpus_statistics,
    prepare,
    train_word2vec,
)
from fastattnerase.extras import MissingPackageError

CONFIG = Word2VecConfig(size=8, iterations=4, seed=3)


def corpus(*, min_count: int = 2, rare: str = "rare") -> PreparedCorpus:
    texts = [f"red apple on a tree. green pear on a {rare}{i}." for i in range(6)]
    examples = [Example(i, text, i % 2) for i, text in enumerate(texts)]
    parts = Corpus(examples[:4], examples[4:], [Example(9, "test only. test only.", 0)], ["a", "b"])
    return prepare(parts, DataConfig(min_count=min_count))


def test_vectors_have_length_one_and_padding_none() -> None:
    pytest.importorskip("gensim")
    prepared = corpus()
    table = train_word2vec(prepared, CONFIG)
    assert table.shape == (len(prepared.vocabulary), 8)
    assert table.dtype == torch.float32
    torch.testing.assert_close(table[1:].norm(dim=1), torch.ones(len(table) - 1))
    assert table[0].tolist() == [0.0] * 8
    assert "test" not in prepared.vocabulary  # neither its vocabulary nor its words are seen
    raw = train_word2vec(prepared, replace(CONFIG, unit=False))
    torch.testing.assert_close(torch.nn.functional.normalize(raw, dim=1), table)


def test_the_unknown_word_is_trained_where_it_occurs() -> None:
    pytest.importorskip("gensim")
    once, more = corpus(), corpus(min_count=1)
    assert len(more.vocabulary) == len(once.vocabulary) + 6
    [few, many] = (train_word2vec(once, replace(CONFIG, iterations=n))[-1] for n in (1, 20))
    assert not torch.equal(few, many)
    [few, many] = (train_word2vec(more, replace(CONFIG, iterations=n))[-1] for n in (1, 20))
    assert torch.equal(few, many)  # never seen: the random start


def test_the_same_seed_gives_the_same_vectors_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    path = tmp_path / "vectors.pt"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch; import test_data_word2vec as t;"
        "torch.save(t.train_word2vec(t.corpus(), t.CONFIG), sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", code, Path(__file__).parent, path], check=True)
    table = train_word2vec(corpus(), CONFIG)
    assert torch.equal(torch.load(path, weights_only=True), table)
    assert not torch.equal(train_word2vec(corpus(), replace(CONFIG, seed=4)), table)


def test_vectors_are_kept_for_the_same_words_and_settings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gensim")
    table = train_word2vec(corpus(), CONFIG, tmp_path)
    [path] = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "gensim.models", None)  # training is impossible now
        assert torch.equal(train_word2vec(corpus(), CONFIG, tmp_path), table)
        for prepared, config in [
            (corpus(), replace(CONFIG, window=2)),
            (corpus(min_count=1), CONFIG),
        ]:
            with pytest.raises(
                MissingPackageError, match=r"pip install 'fastattnerase\[word2vec\]'"
            ):
                train_word2vec(prepared, config, tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="is damaged"):
        train_word2vec(corpus(), CONFIG, tmp_path)


def test_bad_settings() -> None:
    with pytest.raises(DataError, match="window: given 0"):
        Word2VecConfig(window=0)
    with pytest.raises(DataError, match="unknown 'speed'"):
        Word2VecConfig.from_dict({"speed": 1})
    assert Word2VecConfig.from_dict(CONFIG.to_dict()) == CONFIG


def test_statistics_by_hand() -> None:
    parts = Corpus(
        [Example(0, "One two. Three!", 0), Example(1, "Four", 1)],
        [Example(2, "Five six seven.", 1)],
        [Example(3, "Eight. Nine. Ten.", 0)],
        ["a", "b"],
    )
    found = corpus_statistics(prepare(parts, DataConfig(min_count=1)))
    # Words 5, 1, 4, 6 with punctuation; sentences 2, 1, 1, 3.
    assert found.words == 4.0
    assert found.words_sd == pytest.approx(3.5**0.5)
    assert found.sentences == 1.75
    assert found.sentences_sd == pytest.approx(0.6875**0.5)
    assert (found.train, found.dev, found.test, found.classes) == (2, 1, 1, 2)
    assert found.train_and_dev == 3
