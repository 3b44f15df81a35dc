"""Words, vocabulary, word vectors, documents and batches."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from pathlib import Path

import pytest
import torch

from fastattnerase.data import (
    DataConfig,
    DataError,
    Dataset,
    Example,
    Vocabulary,
    batches_in_order,
    collate,
    encode,
    load_corpus,
    prepare,
    prepare_stored,
    read_vectors,
    shuffled_batches,
    tokenise,
)
from fastattnerase.data.tokens import find_language


def words_of(text: str) -> list[list[str]]:
    [tokenised] = tokenise([Example(0, text, 0)])
    return tokenised.sentences


def test_words_and_sentences() -> None:
    text = "It isn't good, is it?  I paid $9.99 for this.\n\nDr. Who left."
    assert words_of(text) == [
        ["It", "is", "n't", "good", ",", "is", "it", "?"],
        ["I", "paid", "$", "9.99", "for", "this", "."],
        ["Dr.", "Who", "left", "."],
    ]


def test_sentence_texts_are_readable() -> None:
    [text] = tokenise([Example(3, "  Isn't\tit?\n No - it's  not. ", 1)])
    assert text.sentence_texts == ["Isn't it?", "No - it's not."]
    assert (text.id, text.label) == (3, 1)


def test_html_line_breaks_are_white_space_unless_kept() -> None:
    text = "Good.<br /><br>Bad<BR/>end"
    assert words_of(text) == [["Good", "."], ["Bad", "end"]]
    [kept] = tokenise([Example(0, "a <br /> b", 0)], line_breaks=False)
    assert kept.sentences == [["a", "<", "br", "/", ">", "b"]]


@pytest.mark.parametrize("text", ["", "   ", "\n\t\u00a0"])
def test_texts_without_words(text: str) -> None:
    assert words_of(text) == []


def test_vocabulary_counts_and_order() -> None:
    texts = [["The", "film", "the"], ["a", "FILM", "b"], ["b"]]
    vocabulary = Vocabulary.build(texts, min_count=2)
    assert vocabulary.words == ["the", "film", "b"]
    assert len(vocabulary) == 5  # padding, three words, unknown
    assert vocabulary.indices(["The", "film", "b", "a", "c"]) == [1, 2, 3, 4, 4]
    assert vocabulary.unknown == 4
    assert "FILM" in vocabulary
    assert "a" not in vocabulary


def test_vocabulary_with_case() -> None:
    vocabulary = Vocabulary.build([["The", "the", "The"]], lower_case=False)
    assert vocabulary.indices(["The", "the", "THE"]) == [1, 2, 3]


@pytest.mark.parametrize("word", ["pad", "<pad>", "<PAD>", "[PAD]", "0", "<unk>"])
def test_no_word_is_padding(word: str) -> None:
    known = Vocabulary.build([[word, "x"]])
    assert known.indices([word]) == [1]
    assert Vocabulary(["x"]).indices([word]) == [2]


def test_vocabulary_survives_json() -> None:
    vocabulary = Vocabulary(["a", "\u2028", "B"], lower_case=False)
    again = Vocabulary.from_dict(json.loads(json.dumps(vocabulary.to_dict())))
    assert (again.words, again.lower_case) == (vocabulary.words, False)
    with pytest.raises(DataError, match="words: given 'a' twice"):
        Vocabulary(["a", "b", "a"])


GLOVE = "the 0.5 1.0 -1.5\nfilm 3 4 0\n. . . 9 9 9\nthe 7 7 7\nunused 1 1 1\n"


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_word_vectors(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"glove.txt{suffix}"
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    path.write_bytes(pack(GLOVE.encode()))
    vocabulary = Vocabulary(["film", "rare", ". . .", "the"])
    table, found = read_vectors(path, vocabulary)
    assert found == 3
    assert table.shape == (6, 3)
    assert table.dtype == torch.float32
    assert table[0].tolist() == [0, 0, 0]
    assert table[1].tolist() == [3, 4, 0]
    assert table[3].tolist() == [9, 9, 9]
    assert table[4].tolist() == [0.5, 1.0, -1.5]
    assert table[2].abs().min() > 0
    assert torch.equal(read_vectors(path, vocabulary).table, table)
    assert not torch.equal(read_vectors(path, vocabulary, seed=1).table[2], table[2])


def test_unit_vectors_and_word2vec_header(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("2 3\nfilm 3 4 0 \nthe 0 0 2 \n")
    table, found = read_vectors(path, Vocabulary(["film", "x"]), unit=True)
    assert found == 1
    torch.testing.assert_close(table[1], torch.tensor([0.6, 0.8, 0.0]))
    torch.testing.assert_close(table.norm(dim=1), torch.tensor([0.0, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"film 1 2\nthe 1\n", "line 2: given 2 fields, needed a word and 2 numbers"),
        (b"film 1 x\n", "line 1: could not convert"),
        (b"other 1 2\n", "has a vector for none of 1 known word"),
        (b"", "has a vector for none of 1 known word"),
        (b"caf\xe9 1 2\n", "not UTF-8: byte 0xe9 at offset 3"),
    ],
)
def test_bad_vector_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_vectors(path, Vocabulary(["film"]))


def dataset_of(*texts: str, max_tokens: int | None = None) -> Dataset:
    vocabulary = Vocabulary(["apple", "bear", "cake", "."])
    examples = [Example(10 + i, text, i % 2) for i, text in enumerate(texts)]
    return encode(examples, vocabulary, max_tokens=max_tokens)


def test_documents() -> None:
    dataset = dataset_of("Apple bear. Cake!", "   ", "bear")
    first, empty, last = dataset
    assert first.token_ids.tolist() == [1, 2, 4, 3, 5]
    assert first.sentence_lengths.tolist() == [3, 2]
    assert first.tokens == ["Apple", "bear", ".", "Cake", "!"]
    assert first.sentences == ["Apple bear.", "Cake!"]
    assert (len(empty), empty.sentence_lengths.tolist(), empty.tokens) == (0, [], [])
    assert (last.id, last.label) == (12, 0)
    assert dataset.truncated == 0
    assert [document.id for document in dataset[1:]] == [11, 12]


def test_long_documents_are_cut_and_counted() -> None:
    dataset = dataset_of(
        "apple bear. cake cake cake. apple.", "apple bear.", "apple.", max_tokens=4
    )
    assert dataset.truncated == 1
    assert dataset[0].token_ids.tolist() == [1, 2, 4, 3]
    assert dataset[0].sentence_lengths.tolist() == [3, 1]
    assert dataset[0].tokens == ["apple", "bear", ".", "cake"]
    assert len(dataset[0].sentences) == 2
    exact = dataset_of("apple bear. cake cake cake. apple.", max_tokens=3)
    assert exact[0].sentence_lengths.tolist() == [3]
    assert len(exact[0].sentences) == 1


def test_prepare_builds_the_vocabulary_from_train_and_dev(tmp_path: Path) -> None:
    for name, text in (("train", "x y,0\nx,1"), ("dev", "y z,0"), ("test", "w w w x,1")):
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{text}\n")
    vectors = tmp_path / "v.txt"
    vectors.write_text("x 1 2 3 4\nw 1 1 1 1\n")
    config = DataConfig(
        **{name: str(tmp_path / f"{name}.csv") for name in ("train", "dev", "test")},
        min_count=2,
        vectors=str(vectors),
    )
    prepared = prepare(load_corpus(config), config)
    assert prepared.vocabulary.words == ["x", "y"]
    assert prepared.test[0].token_ids.tolist() == [3, 3, 3, 1]
    assert prepared.embeddings is not None
    assert prepared.embeddings.shape == (4, 4)
    assert prepared.vectors_found == 1


def test_collate() -> None:
    batch = collate(dataset_of("apple bear. cake.", "", "bear").documents)
    assert batch.ids.tolist() == [10, 11, 12]
    assert batch.labels.tolist() == [0, 1, 0]
    assert batch.token_ids.tolist() == [1, 2, 4, 3, 4, 2]
    assert batch.document_lengths.tolist() == [5, 0, 1]
    assert batch.sentence_lengths.tolist() == [3, 2, 1]
    assert batch.sentence_counts.tolist() == [2, 0, 1]
    assert {tensor.dtype for tensor in batch if tensor is not None} == {torch.int64}
    assert batch.query_ids is None
    empty = collate(dataset_of("").documents)
    assert {tensor.dtype for tensor in empty if tensor is not None} == {torch.int64}
    assert empty.token_ids.shape == (0,)


def test_batches_in_order_keep_to_the_budget() -> None:
    dataset = dataset_of(
        "apple apple", "apple", "", "apple apple apple apple apple", "apple", "apple apple", "apple"
    )
    batches = list(batches_in_order(dataset, 3))
    assert [batch.ids.tolist() for batch in batches] == [[10, 11, 12], [13], [14, 15], [16]]
    assert list(batches_in_order(dataset[:0], 3)) == []


def test_shuffled_batches_cover_every_document_once_within_the_limits() -> None:
    dataset = dataset_of(*("apple " * (1 + 37 * i % 50) for i in range(120)), "apple " * 90)
    batches = shuffled_batches(dataset, 16, 80, seed=5)
    assert sorted(i for batch in batches for i in batch) == list(range(121))
    for batch in batches:
        longest = max(len(dataset[i]) for i in batch)
        assert len(batch) == 1 or (len(batch) <= 16 and longest * len(batch) <= 80)
    assert any(batch == [120] for batch in batches)  # longer than the budget: alone
    assert shuffled_batches(dataset, 16, 80, seed=5) == batches
    assert shuffled_batches(dataset, 16, 80, seed=6) != batches
    first_lengths = [len(dataset[batch[0]]) for batch in batches]
    assert first_lengths != sorted(first_lengths)


def test_sentences_by_a_pipeline(tmp_path: Path) -> None:
    import spacy

    language = spacy.blank("en")
    language.add_pipe("sentencizer", config={"punct_chars": [";"]})
    language.to_disk(tmp_path / "pipeline")
    example = Example(0, "One. two; three", 0)
    [text] = tokenise([example], sentences=str(tmp_path / "pipeline"))
    assert text.sentences == [["One", ".", "two", ";"], ["three"]]
    [text] = tokenise([example])
    assert text.sentences == [["One", "."], ["two", ";", "three"]]


def test_a_pipeline_that_is_not_installed() -> None:
    message = r"sentences: spaCy has no pipeline 'en_nothing' .*python -m spacy download en_nothing"
    with pytest.raises(DataError, match=message):
        list(tokenise([Example(0, "a", 0)], sentences="en_nothing"))


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        (
            "fr",
            "L'ami n'est pas là. Si!",
            [["L'", "ami", "n'", "est", "pas", "là", "."], ["Si", "!"]],
        ),
        ("de", "Das gilt z.B. heute.", [["Das", "gilt", "z.B.", "heute", "."]]),
        ("zh", "我喜欢。电影", [["我", "喜", "欢", "。"], ["电", "影"]]),
        ("xx", "Isn't it so?", [["Isn't", "it", "so", "?"]]),
    ],
)
def test_words_of_other_languages(language: str, text: str, sentences: list[list[str]]) -> None:
    [found] = tokenise([Example(0, text, 0)], language=language)
    assert found.sentences == sentences
    assert words_of(text) != sentences  # by English rules


def test_words_as_given() -> None:
    [found] = tokenise([Example(0, " it is n't\tgood.  <br />", 0)], sentences="spaces")
    assert found.sentences == [["it", "is", "n't", "good.", "<br", "/>"]]


def test_a_language_that_is_not_there() -> None:
    message = r"language: given 'qq', needed a code of a language that spaCy has here.* E048"
    with pytest.raises(DataError, match=message.replace(" E048", r"E048")):
        list(tokenise([Example(0, "a", 0)], language="qq"))


def test_a_corpus_of_another_language(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = [f"L'ami n'est pas là,{i % 2}" for i in range(20)]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    config = DataConfig(path=str(path), language="fr")
    told: list[tuple[int, int]] = []
    prepared = prepare(load_corpus(config), config, progress=lambda *counts: told.append(counts))
    assert told == [(done, 20) for done in range(1, 21)]
    assert prepared.train[0].tokens == ["L'", "ami", "n'", "est", "pas", "là"]
    stored = prepare_stored(config, tmp_path / "stored")
    assert stored.train.digest() == prepared.train.digest()


@pytest.mark.parametrize("language", ["en", "de", "xx"])
def test_rules_cut_as_spacy_does(language: str) -> None:
    """Random texts of what sentences end with, with the pipeline's own sentences beside them."""
    chance = random.Random(0)
    pieces = [
        *("Hello", "world", "Mr.", "e.g.", "U.S.", "3.5", "don't", "日本", "é", ":)", "--", "http://x.y"),
        *(" ", " ", "  ", "\n", "\t", "\u00a0", "\u200b", "\r\n"),
        *(".", "!", "?", "...", "…", "。", "！", '"', "'", "(", ")", ",", "$", "-", '?"'),
    ]  # fmt: skip
    texts = ["".join(chance.choices(pieces, k=chance.randrange(30))) for _ in range(400)]
    pipeline = find_language("rules", language)
    assert pipeline is not None
    found = tokenise([Example(0, text, 0) for text in texts], line_breaks=False, language=language)
    for text, ours in zip(texts, found, strict=True):
        theirs = [
            ([token.text for token in sentence if not token.is_space], sentence.text)
            for sentence in pipeline(text).sents
        ]
        assert ours.sentences == [words for words, _ in theirs if words]
        assert ours.sentence_texts == [" ".join(whole.split()) for words, whole in theirs if words]
