"""Scores that inseq saved: `FeatureAttributionOutput.save`, read without inseq."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastattnerase.data.errors import DataError
from fastattnerase.extras import needs
from fastattnerase.plurals import counted

_GZIP = b"\x1f\x8b"  # what a compressed file begins with
_SCORES = "attribution"  # inseq's name of the tensor within its safetensors


def read_inseq(path: str | Path, *, generated: int = 0) -> list[dict[str, list[Any]]]:
    """Read the tokens of texts, and their scores for one generated token, from inseq's JSON.

    Of a model with an encoder these are the source's tokens, of any other those that stand before
    the first generated one. `scores_of_tokens` takes what comes back, drops special tokens and
    checks the others against the documents.

    Args:
        path: a file of `FeatureAttributionOutput.save`, compressed or not, with or without
            `use_primitives`; of `output.aggregate()` where a method scores features of tokens.
        generated: which of the attributed tokens the scores are for, the first 0.

    Returns:
        For each text its `tokens` and their `scores`.

    Raises:
        DataError: the file cannot be read, or a field is missing or not of the form; it names file
            and field. No such generated token.

    Source:
        Sarti et al. 2023, Inseq: an interpretability toolkit for sequence generation models.

    Example:
        >>> from fastattnerase.interop import read_inseq, scores_of_tokens
        >>> explained = read_inseq("saliency.json")  # doctest: +SKIP
        >>> theirs = scores_of_tokens(explained, dataset, model.words)  # doctest: +SKIP
    """
    try:
        content = Path(path).read_bytes()
        text = (gzip.decompress(content) if content[:2] == _GZIP else content).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    try:
        output = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: given no JSON ({error}), needed inseq's saved output") from error
    try:
        texts = _field(output, "sequence_attributions", "")
        if not isinstance(texts, list):
            raise _wrong("sequence_attributions", texts, "a list")
        return [
            _of_text(one, f"sequence_attributions[{row}]", generated)
            for row, one in enumerate(texts)
        ]
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _wrong(field: str, given: Any, needed: str) -> ValueError:
    """Say which field is not of the form."""
    return ValueError(f"{field}: given {given!r:.40}, needed {needed}")


def _field(node: Any, name: str, within: str) -> Any:
    """Give a field of an object, whose fields stand under `attributes` unless saved as primitives.

    Args:
        node: the object.
        name: the field.
        within: where the object stands, for messages.
    """
    where = f"{within}.{name}" if within else name
    fields = node.get("attributes", node) if isinstance(node, dict) else None
    if not isinstance(fields, dict):
        raise _wrong(where, node, "an object with it")
    if name not in fields:
        raise ValueError(f"{where}: given none, needed it, as inseq saves it")
    return fields[name]


def _of_text(node: Any, within: str, generated: int) -> dict[str, list[Any]]:
    """Read the tokens of a text and their scores."""
    side = "source" if _field(node, "source_attributions", within) is not None else "target"
    field = f"{within}.{side}_attributions"
    scores = _scores(_field(node, f"{side}_attributions", within), field)
    listed = _field(node, side, within)
    if not isinstance(listed, list):
        raise _wrong(f"{within}.{side}", listed, "a list of tokens")
    tokens = []
    for place, one in enumerate(listed):
        token = _field(one, "token", f"{within}.{side}[{place}]")
        if not isinstance(token, str):
            raise _wrong(f"{within}.{side}[{place}].token", token, "a text")
        tokens.append(token)
    if scores.ndim != 2:
        raise ValueError(
            f"{field}: given {list(scores.shape)}, needed [tokens, generated tokens], which "
            "output.aggregate() of inseq gives"
        )
    if len(scores) != len(tokens):
        raise ValueError(
            f"{field}: given {counted(len(scores), 'row')}, needed {len(tokens)}, one a token"
        )
    if type(generated) is not int or not 0 <= generated < scores.shape[1]:
        raise ValueError(
            f"generated: given {generated}, needed 0 to {scores.shape[1] - 1}, the tokens that "
            f"{field} has"
        )
    end = len(tokens)
    if side == "target":
        end = _field(node, "attr_pos_start", within)
        if not isinstance(end, int) or not 0 <= end <= len(tokens):
            raise _wrong(f"{within}.attr_pos_start", end, f"0 to {len(tokens)}")
    return {"tokens": tokens[:end], "scores": scores[:end, generated].tolist()}


def _scores(given: Any, field: str) -> Tensor:
    """Read a tensor of safetensors in base64, float64."""
    with needs("text"):
        from safetensors import SafetensorError
        from safetensors.torch import load

    if not isinstance(given, str):
        raise _wrong(field, given, "safetensors in base64")
    try:
        found = load(base64.b64decode(given, validate=True))
    except (ValueError, SafetensorError, KeyError) as error:  # KeyError: no type of torch's
        raise ValueError(
            f"{field}: given {given!r:.40} ({error}), needed safetensors in base64"
        ) from error
    if _SCORES not in found:
        raise ValueError(f"{field}: given {', '.join(found) or 'none'}, needed {_SCORES!r}")
    if found[_SCORES].is_complex():
        raise ValueError(f"{field}: given {found[_SCORES].dtype}, needed real numbers")
    return found[_SCORES].to(torch.float64)
