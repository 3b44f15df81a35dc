"""What `explain` is given: a model in one of its forms, and texts cut into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastattnerase.plurals import counted

if TYPE_CHECKING:
    from fastattnerase.data import DataConfig, Document, TokenisedText, Vocabulary
    from fastattnerase.models import AttentionClassifier
else:  # imported where they are used; hints that are read at run time say Any
    AttentionClassifier = DataConfig = Document = TokenisedText = Vocabulary = Any

Text = str | Sequence[str] | Sequence[Sequence[str]]

_SHOWN = 40  # characters of what is refused


class NamedModel(NamedTuple):
    """A model with what is needed to read texts for it.

    Attributes:
        model: the model.
        vocabulary: its words.
        classes: names of its classes.
        data: how its texts were read; None for a model object, which says nothing of them.
    """

    model: AttentionClassifier
    vocabulary: Vocabulary
    classes: list[str]
    data: DataConfig | None


def find_model(
    model: Any, vocabulary: Vocabulary | None, classes: Sequence[str] | None
) -> NamedModel:
    """Find model, vocabulary and classes in what `explain` is given."""
    from fastattnerase.models import AttentionClassifier, LoadedModel, load_model

    if isinstance(model, AttentionClassifier):
        if vocabulary is None:
            raise ValueError(
                "vocabulary: given none with a model object, needed its words, or as model what "
                "load_model returns"
            )
        names = [*map(str, range(model.num_classes))] if classes is None else [*classes]
        if len(names) != model.num_classes:
            raise ValueError(
                f"classes: given {counted(len(names), 'name')}, needed {model.num_classes}"
            )
        if len(vocabulary) != len(model.embedding.weight):
            raise ValueError(
                f"vocabulary: given {counted(len(vocabulary) - 2, 'word')}, needed the "
                f"{len(model.embedding.weight) - 2} of the model"
            )
        return NamedModel(model, vocabulary, names, None)
    for name, value in (("vocabulary", vocabulary), ("classes", classes)):
        if value is not None:
            raise ValueError(f"{name}: given with a saved model, needed with a model object only")
    if isinstance(model, (str, Path)):
        model = load_model(_model_folder(Path(model)))
    if not isinstance(model, LoadedModel):
        raise TypeError(
            f"model: given {type(model).__name__}, needed what load_model returns, the folder of a "
            "model or run, or a model with its vocabulary"
        )
    return NamedModel(model.model, model.vocabulary, model.classes, model.data_config)


def _model_folder(folder: Path) -> Path:
    """Give the folder of a model, or of the model that a run was made of."""
    from fastattnerase.models.saved import DESCRIPTION
    from fastattnerase.models.storage import read_json as read_model
    from fastattnerase.runs.rundir import RUN, RunError, read_json

    if (folder / DESCRIPTION).exists() or not (folder / RUN).exists():
        return folder  # without a model in it `load_model` says so
    config = read_json(folder / RUN)["source"].get("model_config")
    if config is None:
        raise RunError(
            f"{folder}: given a run on tensors, needed one on a model, which reads texts"
        )
    # `erase` writes into the model's folder, a study's models lie beside its runs.
    study = Path(*("train" if part == "erase" else part for part in folder.absolute().parts))
    for near in (folder.absolute().parent, study):
        path = near / DESCRIPTION
        if path.exists() and read_model(path).get("model") == config:
            return near
    raise RunError(
        f"{folder}: given a run whose model is not in the folder above it, needed the model's "
        "folder"
    )


# --- the texts -----------------------------------------------------------------------------------


class CutText(NamedTuple):
    """A text as sentences of words.

    Attributes:
        tokenised: the sentences; none is empty.
        places: `[M]`, of each sentence its number among those given.
    """

    tokenised: TokenisedText
    places: NDArray[np.int64]


def check_queries(queries: Any, count: int, named: NamedModel) -> list[Any]:
    """Give the query of each of so many texts; None for each where the model takes one text."""
    if named.model.config.kind != "pair":
        if queries is not None:
            raise ValueError(
                f"queries: given with a model of kind {named.model.config.kind}, needed with one "
                "of kind pair, which reads two texts"
            )
        return [None] * count
    if queries is None:
        raise ValueError("queries: given none, needed one for each text: the model is of kind pair")
    found = [queries] if isinstance(queries, str) else list(queries)
    if len(found) != count:
        raise ValueError(f"queries: given {len(found)}, needed {count}, one for each text")
    for number, query in enumerate(found):
        if not isinstance(query, str) and not _is_list(query, str):
            raise TypeError(
                f"queries: given {query!r:.{_SHOWN}} as number {number}, needed a string or a list "
                "of words"
            )
    return found


def cut_text(
    text: Any, number: int, data: DataConfig | None, sentences: bool, query: Any = None
) -> CutText:
    """Cut one given text into sentences of words, and its query, if any, into words."""
    cut = _cut(text, number, data, sentences)
    if query is None:
        return cut
    words = list(query)
    if isinstance(query, str):
        words = [word for part in _cut(query, number, data, False)[0].sentences for word in part]
    return cut._replace(tokenised=replace(cut.tokenised, query=words))


def _cut(text: Any, number: int, data: DataConfig | None, sentences: bool) -> CutText:
    from fastattnerase.data import Example, TokenisedText, tokenise
    from fastattnerase.data.examples import NO_LABEL

    if isinstance(text, str):
        options = {} if data is None else data.tokenisation
        [tokenised] = tokenise([Example(number, text, NO_LABEL)], **options)
        return CutText(tokenised, np.arange(len(tokenised.sentences)))
    if _is_list(text, str):
        if sentences and text:
            raise ValueError(
                f"texts: given a list of words as number {number}, needed strings or lists of "
                "sentences, each a list of words: the model is hierarchical"
            )
        text = [text]
    elif not (isinstance(text, (list, tuple)) and all(_is_list(part, str) for part in text)):
        raise TypeError(
            f"texts: given {text!r:.{_SHOWN}} as number {number}, needed a string, a list of words "
            "or a list of sentences, each a list of words"
        )
    kept = [place for place, sentence in enumerate(text) if sentence]
    found = [list(text[place]) for place in kept]
    joined = [" ".join(sentence) for sentence in found]
    return CutText(TokenisedText(number, NO_LABEL, found, joined), np.array(kept, dtype=np.int64))


def _is_list(given: Any, kind: type) -> bool:
    return isinstance(given, (list, tuple)) and all(isinstance(part, kind) for part in given)


class Items:
    """The items of the last attention layer on one text: its words, or its sentences.

    Args:
        document: the text as the model reads it, cut after its largest number of words.
        cut: the whole text.
        vocabulary: the words that the model knows.
        sentences: whether sentences are the items.
    """

    def __init__(
        self, document: Document, cut: CutText, vocabulary: Vocabulary, sentences: bool
    ) -> None:
        strange = document.token_ids == vocabulary.unknown  # [N]
        words_asked = document.query_tokens
        self.query = None if words_asked is None else " ".join(words_asked)
        self.texts = tuple(document.sentences if sentences else document.tokens)
        self.positions = np.arange(len(self.texts))
        self.unknown = strange
        if sentences:
            self.positions = cut.places[: len(self.texts)]
            ends = document.sentence_lengths.cumsum()
            known = np.concatenate([[0], (~strange).cumsum()])  # [N + 1]
            self.unknown = known[ends] == known[ends - document.sentence_lengths]
        self.notes: list[str] = []
        words = sum(map(len, cut.tokenised.sentences))
        if not words:
            self.notes.append("the text has no words: the decision is that of the bias alone")
        elif strange.all():
            self.notes.append(
                "the model does not know its word"
                if len(strange) == 1
                else f"the model knows none of the {len(strange)} words"
            )
        if len(strange) < words:
            self.notes.append(f"cut after {len(strange)} of {words} words, as in training")
