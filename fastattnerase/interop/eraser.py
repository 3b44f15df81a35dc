"""ERASER's results: one JSON object a line, as its `metrics.py` reads and others write them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from fastattnerase.data.errors import DataError
from fastattnerase.measures.base import read_scores
from fastattnerase.measures.human_words import runs
from fastattnerase.measures.thresholds import Thresholds
from fastattnerase.plurals import counted

if TYPE_CHECKING:
    from fastattnerase.input_erasure import InputErasure
else:  # imported where they are used; hints that are read at run time say Any
    InputErasure = Any

_FORM = (
    'an object of ERASER\'s results, {"annotation_id": …, "rationales": [{"docid": …, …}, …], …}'
)
_Kind = TypeVar("_Kind", str, int, list[Any], dict[str, Any])
_NAMES = {str: "text", int: "whole number", list: "list", dict: "object"}
_HARD, _SOFT = "hard_rationale_predictions", "soft_rationale_predictions"
_WITHOUT, _ONLY = (
    "comprehensiveness_classification_scores",
    "sufficiency_classification_scores",
)


@dataclass(frozen=True)
class EraserRationale:
    """What a method says of one document.

    Attributes:
        docid: the document.
        soft: a score for each word, or None.
        hard: spans of words, the first and the one after the last, or None.
    """

    docid: str
    soft: tuple[float, ...] | None = None
    hard: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True)
class EraserThreshold:
    """What the model says when the top words are erased, or alone are left.

    Attributes:
        threshold: the fraction of the words.
        without: probabilities by class without them ("comprehensiveness").
        only: probabilities by class of them alone ("sufficiency").
    """

    threshold: float
    without: Mapping[str, float]
    only: Mapping[str, float]


@dataclass(frozen=True)
class EraserResult:
    """One line of a results file.

    Attributes:
        annotation_id: the example.
        rationales: what is said of each of its documents.
        classification: the model's decision, or None.
        classification_scores: its probabilities by class, or None.
        thresholded_scores: what it says at each threshold; empty for none.
        tokens_to_flip: words erased at the first change of the decision, or None.
    """

    annotation_id: str
    rationales: tuple[EraserRationale, ...]
    classification: str | None = None
    classification_scores: Mapping[str, float] | None = None
    thresholded_scores: tuple[EraserThreshold, ...] = ()
    tokens_to_flip: int | None = None


def write_eraser(path: str | Path, results: Iterable[EraserResult]) -> int:
    """Write results as ERASER's code reads them.

    Args:
        path: the file; it is written anew.
        results: a line each.

    Returns:
        How many lines were written.

    Raises:
        ValueError: a number that is not finite, which JSON has no word for; what `read_eraser`
            refuses, such as a span without words.
        TypeError: no results; anything but numbers and texts, such as tensors.

    Source:
        DeYoung et al. 2020, ERASER; the format is described in its code's README.

    Example:
        >>> import tempfile
        >>> from fastattnerase.interop import EraserRationale, EraserResult, read_eraser
        >>> from fastattnerase.interop import write_eraser
        >>> row = EraserResult("a_0", (EraserRationale("a", (0.5, 0.25), ((0, 1),)),))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_eraser(f"{folder}/results.jsonl", [row])
        ...     read_eraser(f"{folder}/results.jsonl") == [row]
        1
        True
    """
    lines = []
    for result in results:
        if not isinstance(result, EraserResult):
            raise TypeError(f"results: given {type(result).__name__}, needed EraserResult")
        try:
            line = _line_of(result)
            lines.append(json.dumps(line, allow_nan=False) + "\n")
        except ValueError:
            raise ValueError(
                f"results: given a number that is not finite in {result.annotation_id}, needed "
                "finite ones"
            ) from None
        except (TypeError, AttributeError) as error:
            raise TypeError(
                f"results: given {error} in {result.annotation_id}, needed Python's numbers and "
                "texts, as .tolist() of an array or a tensor gives"
            ) from error
        try:
            _result_of(line)
        except ValueError as error:
            raise ValueError(
                f"results: given {error} in {result.annotation_id}, needed {_FORM}"
            ) from None
    Path(path).write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _line_of(result: EraserResult) -> dict[str, Any]:
    """Bring a result into the names of the format; what is None is left out."""
    rationales = []
    for rationale in result.rationales:
        line: dict[str, Any] = {"docid": rationale.docid}
        if rationale.hard is not None:
            line[_HARD] = [{"start_token": a, "end_token": b} for a, b in rationale.hard]
        if rationale.soft is not None:
            line[_SOFT] = list(rationale.soft)
        rationales.append(line)
    found: dict[str, Any] = {"annotation_id": result.annotation_id, "rationales": rationales}
    if result.classification is not None:
        found["classification"] = result.classification
    if result.classification_scores is not None:
        found["classification_scores"] = dict(result.classification_scores)
    if result.thresholded_scores:
        found["thresholded_scores"] = [
            {"threshold": at.threshold, _WITHOUT: dict(at.without), _ONLY: dict(at.only)}
            for at in result.thresholded_scores
        ]
    if result.tokens_to_flip is not None:
        found["tokens_to_flip"] = result.tokens_to_flip
    return found


def read_eraser(path: str | Path) -> list[EraserResult]:
    """Read a results file, of this library or of any other that writes ERASER's.

    Args:
        path: the file, one JSON object a line.

    Returns:
        The results, in order. Fields that the format does not name are passed over.

    Raises:
        DataError: there is no such file, or a line is not of the form; it names file and line.

    Example:
        >>> read_eraser("results.jsonl")[0].rationales[0].soft  # doctest: +SKIP
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    found = []
    # Not splitlines(), which would also cut at marks such as U+2028 that stand within JSON's texts.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(_result_of(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}, line {number}: given {_given(error, line)}, needed {_FORM}"
            ) from error
    return found


def _given(error: Exception, line: str) -> str:
    """Say what is wrong with a line."""
    if isinstance(error, json.JSONDecodeError):
        return f"{line.strip():.40}, which is no JSON ({error})"
    if isinstance(error, KeyError):
        return f"an object without {error}"
    if isinstance(error, (TypeError, AttributeError)):  # such as a list for an object
        return f"{line.strip():.40}, in which something is of another type ({error})"
    return str(error)


def _result_of(line: dict[str, Any]) -> EraserResult:
    """Read one object."""
    rationales = []
    for given in _typed(list, "rationales", line["rationales"]):
        soft, hard = given.get(_SOFT), given.get(_HARD)
        scores = spans = None
        if soft is not None:
            scores = tuple(_number(_SOFT, score) for score in _typed(list, _SOFT, soft))
        if hard is not None:
            spans = tuple(_span(span) for span in _typed(list, _HARD, hard))
        rationales.append(EraserRationale(_typed(str, "docid", given["docid"]), scores, spans))
    decision, scores_of, at_thresholds, flip = (
        line.get(name)
        for name in (
            "classification", "classification_scores", "thresholded_scores", "tokens_to_flip"
        )
    )  # fmt: skip
    thresholds = tuple(
        EraserThreshold(
            _number("threshold", at["threshold"]),
            _scores(_WITHOUT, at[_WITHOUT]),
            _scores(_ONLY, at[_ONLY]),
        )
        for at in _typed(list, "thresholded_scores", [] if at_thresholds is None else at_thresholds)
    )
    return EraserResult(
        _typed(str, "annotation_id", line["annotation_id"]),
        tuple(rationales),
        None if decision is None else _typed(str, "classification", decision),
        None if scores_of is None else _scores("classification_scores", scores_of),
        thresholds,
        None if flip is None else _typed(int, "tokens_to_flip", flip),
    )


def _typed(kind: type[_Kind], name: str, given: Any) -> _Kind:
    """Give what is of a kind; true and false are no whole numbers."""
    if not isinstance(given, kind) or isinstance(given, bool):
        raise ValueError(f"{name} {given!r:.40}, which is no {_NAMES[kind]}")
    return given


def _number(name: str, given: Any) -> float:
    """Give a finite number; a text that looks like one is none."""
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not abs(given) <= sys.float_info.max:
        raise ValueError(f"{name} {given!r:.40}, which is no finite number")
    return float(given)


def _span(given: Any) -> tuple[int, int]:
    """Read the first word of a span and the one after its last."""
    first, after = (_typed(int, name, given[name]) for name in ("start_token", "end_token"))
    if not 0 <= first < after:
        raise ValueError(f"a span of {first, after}")
    return first, after


def _scores(name: str, given: Any) -> dict[str, float]:
    """Read numbers by class."""
    of_class = _typed(dict, name, given)
    return {
        _typed(str, f"a class of {name}", label): _number(name, score)
        for label, score in of_class.items()
    }


def eraser_results(
    annotation_ids: Sequence[str],
    scores: ArrayLike,
    offsets: ArrayLike,
    *,
    docids: Sequence[str] | None = None,
    chosen: ArrayLike | None = None,
    erased: InputErasure | None = None,
    kept: InputErasure | None = None,
    classes: Sequence[str] | None = None,
    fractions: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.5),
    row: int = 0,
) -> list[EraserResult]:
    """Make results of scores and of what erasing them did.

    Args:
        annotation_ids: [B], the examples.
        scores: [T], of the words, one document after another: the soft rationales.
        offsets: [B + 1], integers.
        docids: [B], the documents; default: the examples' names.
        chosen: [T], bool, or integers 0 and 1: the words of the hard rationales, as `choose_words`
            gives them.
        erased: what `erase_inputs` gave with direction "erase", at thresholds that have
            `fractions`; with `kept` it makes decisions, probabilities and `thresholded_scores`.
        kept: the same of the same rankings with direction "keep".
        classes: [C], their names, each another; needed with `erased`.
        fractions: the thresholds.
        row: which ranking of `erased` and `kept`.

    Returns:
        A result for each example.

    Raises:
        ValueError: arguments that do not fit each other; a threshold that was not computed.

    Example:
        >>> from fastattnerase.interop import eraser_results
        >>> [found] = eraser_results(["a_0"], [0.5, 0.25], [0, 2], chosen=[True, False])
        >>> found.rationales[0].hard, found.rationales[0].soft
        (((0, 1),), (0.5, 0.25))
    """
    values, bounds = read_scores("scores", scores, offsets)
    if values.ndim != 1:
        raise ValueError(f"scores: given {list(values.shape)}, needed [T], those of one method")
    docids = annotation_ids if docids is None else docids
    if not len(annotation_ids) == len(docids) == len(bounds) - 1:
        raise ValueError(
            f"annotation_ids, docids: given {len(annotation_ids)} and {len(docids)}, needed "
            f"{len(bounds) - 1}, one a document"
        )
    picked = None
    if chosen is not None:
        marks = np.asarray(chosen)
        if marks.shape != values.shape:
            raise ValueError(f"chosen: given {list(marks.shape)}, needed {list(values.shape)}")
        picked = marks == 1
        if not (picked | (marks == 0)).all():
            raise ValueError("chosen: given others than True and False, needed these")
    if (erased is None) != (kept is None) or (erased is None) != (classes is None):
        raise ValueError("erased, kept, classes: given some of them, needed all or none")
    if erased is not None and kept is not None and classes is not None:
        _check_outputs(erased, kept, classes, row, bounds.tolist())
    found = []
    for b, (example, docid) in enumerate(zip(annotation_ids, docids, strict=True)):
        begin, end = int(bounds[b]), int(bounds[b + 1])
        hard = None
        if picked is not None:
            hard = tuple((int(first), int(last)) for first, last in runs(picked[begin:end]))
        rationale = EraserRationale(docid, tuple(values[begin:end].tolist()), hard)
        more: dict[str, Any] = {}
        if erased is not None and kept is not None and classes is not None:
            more = _outputs(erased, kept, classes, fractions, row, b)
        found.append(EraserResult(example, (rationale,), **more))
    return found


def _check_outputs(
    erased: InputErasure, kept: InputErasure, classes: Sequence[str], row: int, bounds: list[int]
) -> None:
    """Refuse what a model said of other documents or rankings than the results are of."""
    if (erased.direction, kept.direction) != ("erase", "keep"):
        raise ValueError(
            f"erased, kept: given directions {erased.direction} and {kept.direction}, needed erase "
            "and keep"
        )
    if len(classes) != erased.probabilities.shape[1]:
        raise ValueError(
            f"classes: given {len(classes)}, needed "
            f"{counted(erased.probabilities.shape[1], 'name')}"
        )
    if len(set(classes)) != len(classes):
        raise ValueError(f"classes: given {list(classes)!s:.60}, needed each name once")
    for name, found in (("erased", erased), ("kept", kept)):
        if found.offsets.tolist() != bounds:
            raise ValueError(
                f"{name}: given documents with offsets {found.offsets.tolist()!s:.60}, needed "
                f"{bounds!s:.60}, those of scores"
            )
        if not 0 <= row < len(found.rankings):
            raise ValueError(
                f"row: given {row}, needed 0 to {len(found.rankings) - 1}, the rankings of {name}"
            )
    if erased.rankings[row] != kept.rankings[row]:
        raise ValueError(
            f"erased, kept: given rankings {erased.rankings[row]!r} and {kept.rankings[row]!r} in "
            f"row {row}, needed one"
        )


def _outputs(
    erased: InputErasure,
    kept: InputErasure,
    classes: Sequence[str],
    fractions: Sequence[float],
    row: int,
    b: int,
) -> dict[str, Any]:
    """Give what the model says of a document, whole and at the thresholds."""

    def named(p: torch.Tensor) -> dict[str, float]:
        return dict(zip(classes, p.tolist(), strict=True))

    n = int(erased.offsets[b + 1] - erased.offsets[b])
    begin = int(erased.curve_offsets[b])
    at = []
    for fraction in fractions:
        _, counts = Thresholds((fraction,)).counts([n])
        k = int(counts[0]) if len(counts) else 0
        without, only = (found.curves["probabilities"][row, begin + k] for found in (erased, kept))
        if bool(without.isnan().any() | only.isnan().any()):
            raise ValueError(
                f"fractions: given {fraction}, which erased or kept lack, needed at='eraser' or "
                "'every' of erase_inputs"
            )
        at.append(EraserThreshold(fraction, named(without), named(only)))
    found: dict[str, Any] = {
        "classification": classes[int(erased.decision[b])],
        "classification_scores": named(erased.probabilities[b]),
        "thresholded_scores": tuple(at),
    }
    flip = int(erased.first_flip[row, b]) if erased.every else -1
    return found | ({"tokens_to_flip": flip} if flip > 0 else {})
