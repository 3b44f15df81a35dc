"""`fae.explain`: a model's decisions on texts, explained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fastattnerase.choices import BackendName
from fastattnerase.explanation.course import Course
from fastattnerase.explanation.inputs import (
    Items,
    Text,
    check_queries,
    cut_text,
    find_model,
)
from fastattnerase.explanation.records import Explanation, Flip, SmallestSet, TextExplanation
from fastattnerase.ops import Sweep, sweep
from fastattnerase.status import Status

if TYPE_CHECKING:
    from fastattnerase.data import Vocabulary
    from fastattnerase.models import AttentionClassifier, LoadedModel
else:
    # Hints that are read at run time say Any: what they name is imported when it is used.
    Vocabulary = AttentionClassifier = LoadedModel = Any

_MINIMAL = "minimal"
_RANKINGS = ("attention", "gradient", "product", "random")


def explain(
    model: LoadedModel | AttentionClassifier | str | Path,
    texts: Sequence[Text],
    *,
    queries: Sequence[str | Sequence[str]] | None = None,
    rankings: str | Sequence[str] = _RANKINGS,
    vocabulary: Vocabulary | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    backend: BackendName = "auto",
) -> Explanation:
    """Explain a trained model's decisions on texts: attention, curves, the smallest set that flips.

    The text goes the way of the model's own data (words, sentences, cut after `max_tokens`), the
    model's last attention layer becomes an `AttentionBatch`, and `sweep` erases from it. Items are
    the words, of a hierarchical model the sentences.

    Args:
        model: what `load_model` returned; or the folder of a saved model, or of a run that
            `erase` wrote beside its model; or a model with its `vocabulary`.
        texts: strings; or lists of words, taken as they are; or lists of sentences, each a list of
            words, which a hierarchical model needs. At least one; a text may be empty.
        queries: for a model of two texts, and only then: the second text of each, such as a
            question, a string or a list of words. All answers are allowed.
        rankings: names, as of `sweep`.
        vocabulary: the words of a model that is given as an object, and only then.
        classes: names of the classes of a model that is given as an object; by default 0, 1, ….
        seed: of the ranking "random", 0 … 2^63 - 1.
        backend: "auto" or the name of one; see `backends()`.

    Returns:
        An `Explanation`, one `TextExplanation` a text. A text without words, one whose words the
        model does not know, and one with something that is not finite say so in `notes`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        ModelError, RunError: no model there, or a run whose model is not beside it.

    Source: Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> import fastattnerase as fae
        >>> from fastattnerase.data import Vocabulary
        >>> from fastattnerase.models import ModelConfig, build_model
        >>> vocabulary = Vocabulary(["a", "good", "film"])
        >>> model = build_model(ModelConfig(encoder="noenc", embedding_size=8), vocabulary, 2)
        >>> found = fae.explain(model, ["A good film.", ["so", "bad"]], vocabulary=vocabulary)
        >>> found[0].items, found[1].notes
        (('A', 'good', 'film', '.'), ('the model knows none of the 2 words',))
        >>> [len(curve) for curve in found[0].curves.values()]
        [5, 5, 5, 5]
        >>> found.to_pandas()[["text", "position", "item"]].to_numpy().tolist()[3:]
        [[0, 3, '.'], [1, 0, 'so'], [1, 1, 'bad']]
    """
    from fastattnerase.data import encode

    wanted = [rankings] if isinstance(rankings, str) else list(rankings)
    named = find_model(model, vocabulary, classes)
    given = _as_list(texts)
    sentences = named.model.config.kind == "han"
    asked = check_queries(queries, len(given), named)
    cut = [
        cut_text(text, number, named.data, sentences, query)
        for number, (text, query) in enumerate(zip(given, asked, strict=True))
    ]
    dataset = encode(
        [text.tokenised for text in cut],
        named.vocabulary,
        max_tokens=None if named.data is None else named.data.max_tokens,
    )
    found: list[TextExplanation] = []
    names: tuple[str, ...] = ()
    for batch, logits in named.model.attention_outputs(dataset):
        # The smallest set's own course, where there is an exact one and it is not asked for.
        exact = batch.head is None and batch.num_heads == 1
        more = [_MINIMAL] if exact and wanted and _MINIMAL not in wanted else []
        result = sweep(
            batch,
            [*wanted, *more],
            curves=("label_prob", "decision", "logits"),
            orders=True,
            weights=True,
            seed=seed,
            minimal=None,
            backend=backend,
        ).to("cpu")
        names = result.prefixes.rankings[: len(wanted)]
        for b, decided in enumerate(logits.argmax(dim=-1).tolist()):
            number = len(found)
            items = Items(dataset[number], cut[number], named.vocabulary, sentences)
            found.append(_of_instance(result, names, b, items, decided, named.classes))
    return Explanation(found, names, named.classes, sentences)


def _as_list(texts: object) -> list[Text]:
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Iterable):
        raise TypeError(f"texts: given {type(texts).__name__}, needed a list")
    given = list(texts)
    if not given:
        raise ValueError("texts: given an empty list, needed at least one text")
    return given


def _of_instance(
    result: Sweep,
    rankings: Sequence[str],
    b: int,
    items: Items,
    decided: int,
    classes: Sequence[str],
) -> TextExplanation:
    """Read off what the engine says of one instance of a batch, and name classes and items."""
    prefixes, single, minimal = result.prefixes, result.single, result.minimal
    assert prefixes.order is not None  # asked for, as are these
    assert prefixes.weights is not None
    assert single is not None

    def name(label: int) -> str | None:
        return None if label < 0 else classes[label]

    span = slice(int(prefixes.offsets[b]), int(prefixes.offsets[b + 1]))
    points = slice(span.start + b, span.stop + b + 1)
    label, n = int(prefixes.label[b]), span.stop - span.start
    status = Status(int(prefixes.status[b]))
    probabilities = prefixes.probabilities[b].double()  # [C]

    def course(row: int, order: Tensor) -> Course:
        chosen = prefixes.curves["decision"][row, points].tolist()
        after = prefixes.curves["logits"][row, points].double().softmax(-1)  # [n + 1, C]
        return Course(
            order[span].numpy(),
            prefixes.curves["label_prob"][row, points].double().numpy(),
            tuple(name(label) for label in chosen),
            after.amax(-1).numpy(),
        )

    flips, courses = {}, {}
    for row, ranking in enumerate(rankings):
        first = int(prefixes.first_flip[row, b])
        flips[ranking] = Flip(
            first, first / n if first > 0 else np.nan, name(int(prefixes.flip_label[row, b]))
        )
        courses[ranking] = course(row, prefixes.order[row])
    smallest = None
    other = None if minimal is None else name(int(minimal.flip_label[b]))
    if minimal is not None and other is not None:
        places = np.sort(minimal.order[span].numpy()[: int(minimal.size[b])])
        smallest = SmallestSet(
            tuple(items.texts[i] for i in places), tuple(items.positions[places].tolist()), other
        )
    notes = [*items.notes]
    if minimal is None:
        notes.append(f"no smallest set is searched: {result.why_no_minimal}")
    if status & Status.NON_FINITE:
        notes.append("a state, score or weight is not finite: nothing is decided")
    elif label != decided:
        notes.append(f"the model itself decides {classes[decided]!r}")
    return TextExplanation(
        items=items.texts,
        positions=items.positions,
        unknown=items.unknown,
        weights=prefixes.weights[span].numpy(),
        decision=name(label),
        probability=np.nan if label < 0 else float(probabilities[label]),
        probabilities=dict(zip(classes, probabilities.tolist(), strict=True)),
        flips=flips,
        curves={ranking: one.curve for ranking, one in courses.items()},
        decisions={ranking: one.decisions for ranking, one in courses.items()},
        decision_curves={ranking: one.decision_curve for ranking, one in courses.items()},
        orders={ranking: one.order for ranking, one in courses.items()},
        smallest=smallest,
        smallest_first=None
        if minimal is None
        else course(prefixes.rankings.index(_MINIMAL), minimal.order),
        alone=tuple(name(label) for label in single.flip_label[span].tolist()),
        js=single.js[span].double().numpy(),
        drop=single.label_prob_drop[span].double().numpy(),
        status=status,
        notes=tuple(notes),
        searched=minimal is not None,
        query=items.query,
    )
