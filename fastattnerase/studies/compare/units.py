"""The steps of a comparison: scores by method, curves by ranking, the attention layer, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastattnerase import saliency
from fastattnerase.attention_tests.instances import chosen
from fastattnerase.data.dataset import Dataset
from fastattnerase.extras import needs
from fastattnerase.huggingface import load_transformer
from fastattnerase.input_erasure import erase_inputs
from fastattnerase.models import load_model
from fastattnerase.plurals import counted, plural
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import (
    RESULT,
    RUN,
    PartialTables,
    RunError,
    begin,
    finished,
    read_json,
    read_table,
    write_json,
)
from fastattnerase.runs.workspace import Report, Unit, Workspace
from fastattnerase.studies.compare import layer
from fastattnerase.studies.compare.options import KIND, RANDOM, Options
from fastattnerase.studies.compare.subject import (
    Subject,
    parts_of,
    read_documents,
    sentence_sums,
    write_documents,
)

with needs("report"):
    import pandas as pd
    import pyarrow as pa

Floats = NDArray[np.float64]

SCORES, CURVES, LAYER, INSTANCES = "scores", "curves", "layer", "instances"
SUMMARY = "summary"
_SCORES = pa.schema(
    [
        ("row", pa.int64()),
        ("scores", pa.list_(pa.float64())),
        ("target", pa.int64()),
        ("delta", pa.float64()),
        ("status", pa.int64()),
    ]
)
_CURVES = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("k", pa.list_(pa.int64())),
        ("erased", pa.list_(pa.float64())),
        ("erased_decision", pa.list_(pa.int64())),
        ("kept", pa.list_(pa.float64())),
    ]
)
_INSTANCES = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.int64()),
        ("label", pa.int64()),
        ("decision", pa.int64()),
        ("target", pa.int64()),
        ("probability", pa.float64()),
        ("words", pa.int64()),
    ]
)


class Compare(Workspace):
    """A comparison in a folder.

    Args:
        options: methods and measures.
        subject: the model and its documents, which lie in the folder.
        out: the folder of everything that is made.
        device: where the model computes.
        name: in reports.

    Example:
        >>> from pathlib import Path
        >>> about = Subject("runs/m", ("0", "1"), "words", 2, 9, 0, None, 0, 0, "")
        >>> [u.key for u in Compare(Options(methods=("attention",)), about, Path("c")).units()]
        ['scores/attention', 'curves/attention', 'curves/random', 'layer', 'summary']
    """

    scratch = ("parts",)

    def __init__(
        self, options: Options, subject: Subject, out: Path, device: str = "cpu", name: str = ""
    ) -> None:
        super().__init__(out)
        self.options = options
        self.subject = subject
        self.device = device
        self.name = name

    @classmethod
    def begin(
        cls,
        options: Options,
        subject: Subject,
        documents: Dataset,
        out: Path,
        device: str,
        name: str,
    ) -> Compare:
        """Begin a comparison in a folder, or go on with the one that is there.

        Raises:
            RunError: the folder holds another model, other documents or other fixed options; a
                class that does not exist.
            ModelError: a method that is not known.
        """
        options.check_target(list(subject.classes))
        known = tuple(saliency.methods())
        if subject.transformer is not None:
            known = tuple(method for method in known if method != "lrp")  # has no rule for it
        options = replace(options, methods=options.methods or known)
        for method in options.methods or ():
            saliency.find_method(method)
        state = {
            "kind": KIND,
            "digest": subject.digest,
            "classes": list(subject.classes),
            "config": options.fixed() | subject.choices,
        }
        begin(out, state, name=name, about={})
        (out / RESULT).unlink(missing_ok=True)  # until every step of these options is done
        write_documents(documents, out)
        about = {"subject": to_json(subject), "options": to_json(options), "device": device}
        write_json(out / RUN, read_json(out / RUN) | about)
        return cls(options, subject, out, device, name)

    @classmethod
    def open(cls, folder: Path) -> Compare:
        """Open a finished comparison, as its folder says.

        Raises:
            RunError: there is none, or it is not finished.
        """
        run, _ = finished(folder, kind=KIND, again="`fastattnerase compare`")
        options = read_record(Options, run["options"], folder / RUN)
        of = read_record(Subject, run["subject"], folder / RUN)
        return cls(options, of, folder, run["device"], run["name"])

    def close(self) -> Compare:
        """Say in the folder that the comparison is finished."""
        numbers: dict[str, Any] = {
            "documents": self.subject.documents,
            "methods": list(self.methods),
        }
        write_json(self.out / RESULT, numbers)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what another process reads from the folder."""
        kept = ("options", "subject", "out", "device", "name")
        return {name: vars(self)[name] for name in kept}

    # --- what is there ---------------------------------------------------------------------------

    @cached_property
    def documents(self) -> Dataset:
        """The documents that are compared."""
        documents = read_documents(self.out)
        # Which index a word of several pieces has, the model learns of its documents.
        return self.model.fit(documents) if self.subject.transformer else documents

    @cached_property
    def model(self) -> Any:
        """The model."""
        if self.subject.transformer is not None:
            folder, config = self.subject.model, self.subject.transformer
            return load_transformer(folder, config, device=self.device).model
        return load_model(self.subject.model, device=self.device).model

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods."""
        assert self.options.methods is not None  # `begin` has named them
        return self.options.methods

    @property
    def flat(self) -> bool:
        """Whether the attention layer's items are words."""
        return self.subject.items == "words"

    @property
    def word_methods(self) -> tuple[str, ...]:
        """Methods whose scores are of words."""
        if self.flat:
            return self.methods
        methods = [saliency.find_method(name) for name in self.methods]
        return tuple(method.name for method in methods if method.items == "words")

    @property
    def randoms(self) -> list[str]:
        """Names of the random rankings."""
        return [f"{RANDOM}-{number}" for number in range(self.options.random_rankings)]

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Where each document's words begin, `[N + 1]`."""
        return np.concatenate([[0], np.cumsum(self.documents.sizes.words)]).astype(np.int64)

    def random_scores(self, number: int, row: int, items: int) -> Floats:
        """Draw a document's scores of a random ranking: above 0, the same in any order of work."""
        rng = np.random.default_rng((self.options.seed, number, row))
        return 1.0 - rng.random(items)

    def scores(self, method: str) -> list[Floats]:
        """Read a method's scores of each document."""
        table = read_table(self.folder(f"{SCORES}/{method}") / f"{SCORES}.parquet", [SCORES])
        return [np.asarray(own, dtype=np.float64) for own in table[SCORES]]

    def scored(self) -> dict[str, pd.DataFrame]:
        """Read what the methods left beside scores: targets, deltas, status."""
        columns = ["row", "target", "delta", "status"]
        return {
            method: read_table(self.folder(f"{SCORES}/{method}") / f"{SCORES}.parquet", columns)
            for method in self.methods
        }

    def curves(self, of: str) -> pd.DataFrame:
        """Read the curves of a method's ranking, or of all random ones."""
        return read_table(self.folder(f"{CURVES}/{of}") / f"{CURVES}.parquet")

    def instances(self) -> pd.DataFrame:
        """Read what the model makes of each document."""
        return read_table(self.folder(f"{CURVES}/{RANDOM}") / f"{INSTANCES}.parquet")

    def layer_tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Read the attention layer's instances and curves."""
        folder = self.folder(LAYER)
        return read_table(folder / "instances.parquet"), read_table(folder / "curves.parquet")

    def summary(self, table: str) -> pd.DataFrame:
        """Read a table of the summary."""
        return read_table(self.folder(SUMMARY) / f"{table}.parquet")

    # --- the units -------------------------------------------------------------------------------

    def units(self) -> list[Unit]:
        """List the steps, each after those that it needs."""
        n = self.subject.words / max(1, self.subject.documents)
        points = sum({"eraser": 5, "ferret": 10, "every": n}[grid] for grid in self.options.grids)
        scoring = {
            "gradient_norm": 3, "gradient_x_input": 3, "integrated_gradients": 150, "lrp": 60,
            "occlusion": n, "omission": n,
        }  # fmt: skip
        scores = [
            Unit(
                f"{SCORES}/{method}",
                partial(self._score, method),
                partial(self._score_state, method),
                cost=20 + scoring.get(method, 1),
            )
            for method in self.methods
        ]
        curves = [
            Unit(
                f"{CURVES}/{of}",
                partial(self._curves, of),
                partial(self._curves_state, of),
                () if of == RANDOM else (f"{SCORES}/{of}",),
                cost=20 + points * (self.options.random_rankings if of == RANDOM else 1),
                renewed=True,
            )
            for of in (*self.word_methods, RANDOM)
        ]
        made = tuple(unit.key for unit in scores)
        of_layer = Unit(LAYER, self._layer, self._layer_state, made, cost=20, renewed=True)
        before = (*made, *(unit.key for unit in curves), LAYER)
        last = Unit(SUMMARY, self._summarise, self._summary_state, before, cost=40, renewed=True)
        return [*scores, *curves, of_layer, last]

    def _state(self) -> dict[str, Any]:
        of = self.subject
        own = {"digest": of.digest, "classes": list(of.classes), **of.choices}
        return own | self.options.fixed()

    def _score_state(self, method: str) -> dict[str, Any]:
        return self._state() | {"method": method, "max_bytes": self.options.max_bytes}

    def _curves_state(self, of: str) -> dict[str, Any]:
        drawn = {"random_rankings": self.options.random_rankings} if of == RANDOM else {}
        return self._score_state(of) | {"grids": list(self.options.grids)} | drawn

    def _layer_state(self) -> dict[str, Any]:
        drawn = {"random_rankings": self.options.random_rankings}
        return self._state() | {"methods": list(self.methods)} | drawn

    def _summary_state(self) -> dict[str, Any]:
        return {**self._state(), **to_json(self.options)}

    def describe(self, numbers: Any) -> str:
        """Say what a finished step found."""
        return str(numbers.get("found", ""))

    def about(self) -> dict[str, Any]:
        """Say which model, documents and options these are."""
        return {"kind": KIND, "name": self.name, "options": to_json(self.options)}

    def _found(self) -> str:
        return f"{self.subject.documents:,} {plural(self.subject.documents, 'document')}"

    def _in_parts(
        self,
        folder: Path,
        schemas: dict[str, pa.Schema],
        state: dict[str, Any],
        make: Callable[[range], dict[str, list[dict[str, Any]]]],
        report: Report,
    ) -> None:
        """Fill tables part by part, each of which is never done again."""
        lengths = self.documents.sizes.words.tolist()
        parts = parts_of(lengths)
        tables = PartialTables(folder, list(schemas), state)
        for part in parts[tables.count :]:
            rows = make(part)
            tables.append(
                {name: pa.Table.from_pylist(rows[name], schema) for name, schema in schemas.items()}
            )
            report(sum(lengths[: part.stop]) / max(1, sum(lengths)))
        tables.merge(schemas)

    # --- scores ----------------------------------------------------------------------------------

    def _score(self, method: str, folder: Path, report: Report) -> dict[str, Any]:
        """Score the items of all documents."""
        target = self.options.check_target(list(self.subject.classes))

        def make(part: range) -> dict[str, list[dict[str, Any]]]:
            found = saliency.attribute(
                self.model,
                chosen(self.documents, part),
                method,
                target="decision" if target is None else target,
                output=self.options.output,
                max_bytes=self.options.max_bytes,
            )
            deltas = [None] * len(part) if found.delta is None else found.delta.tolist()
            rows = zip(
                part, found.split(), found.target.tolist(), deltas, found.status.tolist(),
                strict=True,
            )  # fmt: skip
            return {
                SCORES: [
                    {"row": row, "scores": own.tolist(), "target": of, "delta": delta,
                     "status": status}
                    for row, own, of, delta, status in rows
                ]
            }  # fmt: skip

        self._in_parts(folder, {SCORES: _SCORES}, self._score_state(method), make, report)
        bad = [
            number for number, own in enumerate(self.scores(method)) if not np.isfinite(own).all()
        ]
        if bad:
            raise RunError(
                f"{method}: given scores that are not finite for document {bad[0]} and "
                f"{counted(len(bad) - 1, 'other')}, needed numbers; leave the method out of "
                "--methods"
            )
        deltas = read_table(folder / f"{SCORES}.parquet", ["delta"])["delta"].dropna()
        worst = f", largest error {deltas.abs().max():.1e}" if len(deltas) else ""
        return {"found": f"{self._found()}{worst}"}

    # --- curves ----------------------------------------------------------------------------------

    def _curves(self, of: str, folder: Path, report: Report) -> dict[str, Any]:
        """Erase words at the input, and keep them, by one ranking or all random ones."""
        target = self.options.check_target(list(self.subject.classes))
        scores = None if of == RANDOM else self.scores(of)
        lengths = self.documents.sizes.words.tolist()

        def make(part: range) -> dict[str, list[dict[str, Any]]]:
            if scores is None:
                rankings = {
                    name: np.concatenate(
                        [self.random_scores(number, row, lengths[row]) for row in part]
                    )
                    for number, name in enumerate(self.randoms)
                }
            else:
                rankings = {of: np.concatenate([scores[row] for row in part])}
            documents = chosen(self.documents, part)
            erased, kept = (
                erase_inputs(
                    self.model,
                    documents,
                    rankings,
                    at=self.options.grids,  # type: ignore[arg-type]
                    direction=direction,
                    target="decision" if target is None else target,
                    max_bytes=self.options.max_bytes,
                )
                for direction in ("erase", "keep")
            )
            found = {CURVES: list(_curve_rows(part, erased, kept))}
            if scores is None:
                of_target = erased.probabilities.gather(1, erased.label[:, None])[:, 0]  # [B]
                found[INSTANCES] = [
                    {"row": row, "id": document.id, "label": document.label, "decision": decision,
                     "target": label, "probability": p, "words": len(document)}
                    for row, document, decision, label, p in zip(
                        part, documents, erased.decision.tolist(), erased.label.tolist(),
                        of_target.tolist(), strict=True,
                    )
                ]  # fmt: skip
            return found

        schemas = {CURVES: _CURVES} | ({INSTANCES: _INSTANCES} if scores is None else {})
        self._in_parts(folder, schemas, self._curves_state(of), make, report)
        return {"found": self._found()}

    # --- the attention layer ---------------------------------------------------------------------

    def _layer(self, folder: Path, report: Report) -> dict[str, Any]:
        """Erase items at the attention layer by all rankings: nothing is encoded again."""
        target = self.options.check_target(list(self.subject.classes))
        scores = {name: self.scores_of_items(name) for name in self.methods}

        def make(part: range) -> dict[str, list[dict[str, Any]]]:
            def ranked(rows: range, items: list[int]) -> dict[str, Floats]:
                found = {
                    name: np.concatenate([own[row] for row in rows]) for name, own in scores.items()
                }
                return found | {
                    name: np.concatenate(
                        [
                            self.random_scores(number, row, count)
                            for row, count in zip(rows, items, strict=True)
                        ]
                    )
                    for number, name in enumerate(self.randoms)
                }

            documents = chosen(self.documents, part)
            return layer.erase(self.model, documents, part, ranked, target, self.options.seed)

        state = self._layer_state()
        self._in_parts(folder, layer.SCHEMAS, state, make, report)
        return {"found": self._found()}

    def scores_of_items(self, method: str) -> list[Floats]:
        """Give a method's scores of the attention layer's items: sums of words, for sentences."""
        own = self.scores(method)
        if method not in self.word_methods or self.flat:
            return own
        return [sentence_sums(d, s) for d, s in zip(self.documents, own, strict=True)]

    # --- numbers ---------------------------------------------------------------------------------

    def _summarise(self, folder: Path, report: Report) -> dict[str, Any]:
        """Compute the measures of each document, their means and how sure they are."""
        from fastattnerase.studies.compare.summary import summarise

        tables, found = summarise(self, report)
        for name, table in tables.items():
            table.to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")
        return found


def _curve_rows(part: range, erased: Any, kept: Any) -> Iterator[dict[str, Any]]:
    """List what erasing and keeping did to each document by each ranking, where it was computed."""
    bounds = erased.curve_offsets.tolist()
    for r, name in enumerate(erased.rankings):
        for b, row in enumerate(part):
            points = slice(bounds[b], bounds[b + 1])
            gone, stay = (one.curves["label_prob"][r, points] for one in (erased, kept))  # [n + 1]
            k = torch.nonzero(~gone.isnan())[:, 0]
            yield {
                "row": row,
                "ranking": name,
                "k": k.tolist(),
                "erased": gone[k].tolist(),
                "erased_decision": erased.curves["decision"][r, points][k].tolist(),
                "kept": stay[k].tolist(),
            }
