"""A corpus on disk is the corpus in memory, whatever the draw, the limits and the interruptions."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastattnerase.data import (
    DataConfig,
    DataError,
    PreparedCorpus,
    StoredDocuments,
    collate,
    load_corpus,
    prepare,
    prepare_stored,
    shuffled_batches,
    stored,
)

WORDS = ["Apple", "bear", "cake", "Don't", "eel.", "fig!", "gnu", "\ud83d\ude00", "iota\n", "jay"]


def write_rows(path: Path, count: int = 60, seed: int = 1) -> str:
    draw = random.Random(seed)
    rows = []
    for index in range(count):
        text = " ".join(draw.choice(WORDS) for _ in range(draw.randint(0, 12)))
        rows.append({"text": text, "label": "abc"[draw.randrange(3)], "i": index})
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


CONFIGS = {
    "stratified": {},
    "independent": {"draw": "independent", "fractions": (0.5, 0.25, 0.25)},
    "limits": {
        "draw": "independent",
        "max_sentences": 3,
        "max_sentence_tokens": 6,
        "limited_splits": ("train", "dev"),
    },
    "quota": {"draw": "quota", "quota": (6, 3, 2), "classes": ("c", "a")},
    "quota with limits": {
        "draw": "quota",
        "quota": (5, 2, 2),
        "max_sentences": 2,
        "limited_splits": ("train", "dev"),
        "max_tokens": 4,
    },
    "options": {"min_count": 3, "lower_case": False, "max_tokens": 5, "line_breaks": False},
}


def require_same(disk: PreparedCorpus, memory: PreparedCorpus) -> None:
    assert disk.vocabulary.to_dict() == memory.vocabulary.to_dict()
    assert disk.classes == memory.classes
    assert disk.dropped == memory.dropped
    for name in ("train", "dev", "test"):
        found, wanted = getattr(disk, name), getattr(memory, name)
        assert isinstance(found.documents, StoredDocuments)
        assert [d.id for d in found] == [d.id for d in wanted]
        for a, b in zip(found, wanted, strict=True):
            assert (a.label, a.tokens, a.sentences) == (b.label, b.tokens, b.sentences)
            assert a.token_ids.dtype == b.token_ids.dtype == np.int64
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert a.sentence_lengths.tolist() == b.sentence_lengths.tolist()
        for a, b in zip(found.sizes, wanted.sizes, strict=True):
            assert a.tolist() == b.tolist()
        assert (found.truncated, found.too_long) == (wanted.truncated, wanted.too_long)
        assert found.digest() == wanted.digest()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shard_documents", [1, 7, 1000])
def test_disk_and_memory_agree(tmp_path: Path, name: str, shard_documents: int) -> None:
    config = DataConfig(path=write_rows(tmp_path / "a.jsonl"), seed=5, **CONFIGS[name])
    memory = prepare(load_corpus(config), config)
    assert len(memory.train) > 3
    disk = prepare_stored(config, tmp_path / "disk", shard_documents=shard_documents)
    require_same(disk, memory)
    assert {p.name for p in (tmp_path / "disk").iterdir()} == {
        *("corpus.json", "train", "dev", "test")
    }
    require_same(prepare_stored(config, tmp_path / "disk"), memory)


def test_reading_by_index_and_slice(tmp_path: Path) -> None:
    config = DataConfig(path=write_rows(tmp_path / "a.jsonl"))
    train = prepare_stored(config, tmp_path / "disk").train
    assert train[-1].id == list(train)[-1].id
    assert [d.id for d in train[2:5]] == [d.id for d in train][2:5]
    with pytest.raises(IndexError):
        train[len(train)]
    batch = collate([train[3], train[0]])
    assert batch.token_ids.tolist() == [*train[3].token_ids, *train[0].token_ids]


def test_an_interrupted_preparation_goes_on_after_the_last_whole_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DataConfig(
        path=write_rows(tmp_path / "a.jsonl"), seed=5, **CONFIGS["quota with limits"]
    )
    memory = prepare(load_corpus(config), config)
    real = stored._make_part
    made: list[str] = []
    limit = 0

    class KilledError(Exception):
        pass

    def make_part(path, examples, config):  # type: ignore[no-untyped-def]
        if len(made) == limit:
            raise KilledError
        made.append(path.name)
        real(path, examples, config)

    monkeypatch.setattr(stored, "_make_part", make_part)
    kills = 0
    while True:
        try:
            disk = prepare_stored(config, tmp_path / "disk", shard_documents=3)
            break
        except KilledError:
            kills += 1
            limit += 2
    assert kills > 3
    require_same(disk, memory)
    assert len(made) == len(set(made))  # nothing was done twice
    whole, made, limit = made, [], 1000
    prepare_stored(config, tmp_path / "again", shard_documents=3)
    assert made == whole


def test_processes_change_nothing(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl")
    config = DataConfig(path=path, seed=5, **CONFIGS["limits"])
    disk = prepare_stored(config, tmp_path / "disk", shard_documents=8, workers=2)
    require_same(disk, prepare(load_corpus(config), config))
    with pytest.raises(DataError, match="workers: given 0"):
        prepare_stored(config, tmp_path / "other", workers=0)


def test_other_files_or_options_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    config = DataConfig(path=write_rows(path))
    prepare_stored(config, tmp_path / "disk")
    with pytest.raises(DataError, match="holds a corpus of other files or options"):
        prepare_stored(replace(config, seed=1), tmp_path / "disk")
    write_rows(path, seed=2)
    with pytest.raises(DataError, match="holds a corpus of other files or options"):
        prepare_stored(config, tmp_path / "disk")


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    config = DataConfig(path=write_rows(tmp_path / "a.jsonl"))
    prepare_stored(config, tmp_path / "disk")
    path = tmp_path / "disk" / "dev" / "token_ids.npy"
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-5])
    with pytest.raises(DataError, match=r"token_ids\.npy is missing or damaged"):
        prepare_stored(config, tmp_path / "disk")


def test_labels_unknown_to_train_are_refused(tmp_path: Path) -> None:
    for name, label in (("train", "ab"), ("test", "z")):
        rows = [json.dumps({"text": "x", "label": label[i % len(label)]}) for i in range(4)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    config = DataConfig(train=str(tmp_path / "train.jsonl"), test=str(tmp_path / "test.jsonl"))
    with pytest.raises(DataError, match="'z'"):
        prepare_stored(config, tmp_path / "disk")


def test_batches_count_the_words_of_sentences_where_asked(tmp_path: Path) -> None:
    config = DataConfig(path=write_rows(tmp_path / "a.jsonl", 80))
    train = prepare_stored(config, tmp_path / "disk").train
    batches = shuffled_batches(train, 8, 20, seed=3, unit="sentence")
    assert sorted(i for batch in batches for i in batch) == list(range(len(train)))
    longest = train.sizes.longest_sentence
    assert all(len(b) == 1 or max(longest[b]) * len(b) <= 20 for b in batches)
    words = train.sizes.words
    assert any(max(words[b]) * len(b) > 20 for b in batches)  # whole documents are not counted
    assert any(len(b) == 8 or max(longest[b]) * (len(b) + 1) > 20 for b in batches)
