"""Runs by corpus and model: which panel, row or column of a figure or table they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fastattnerase.extras import needs
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.study import MODELS

with needs("report"):
    import pandas as pd


@dataclass(frozen=True)
class Grid:
    """Finished runs by corpus and model.

    Attributes:
        corpora: in the order of the runs.
        models: the paper's in its order, then others in the order of the runs.
        cells: the runs by corpus and model.
    """

    corpora: tuple[str, ...]
    models: tuple[str, ...]
    cells: dict[tuple[str, str], Result]

    def row(self, model: str) -> Iterator[tuple[str, Result]]:
        """Yield the corpora of a model with its run on each."""
        for corpus in self.corpora:
            if (corpus, model) in self.cells:
                yield corpus, self.cells[corpus, model]

    def some(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Give those of the wanted models that there are; the first model where there is none."""
        return tuple(model for model in wanted if model in self.models) or self.models[:1]


def arrange(results: Sequence[Result]) -> Grid:
    """Arrange runs by corpus and model.

    Args:
        results: finished runs. Those of a study say what they are; of the others each is a model
            of its own, by name, on one corpus without a name.

    Returns:
        The grid; of two runs of one corpus and model the later is a model of its own.
    """
    cells: dict[tuple[str, str], Result] = {}
    for result in results:
        source = result.run.source
        key = (source.get("corpus", ""), source.get("architecture", result.run.name))
        cells[key if key not in cells else (key[0], result.run.name)] = result
    corpora = tuple(dict.fromkeys(corpus for corpus, _ in cells))
    named = {model for _, model in cells}
    models = [model for model in MODELS if model in named]
    models += [model for model in dict.fromkeys(model for _, model in cells) if model not in MODELS]
    return Grid(corpora, tuple(models), cells)


def without_single_sentences(grid: Grid, corpus: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Make the filter of the published code: documents with one sentence are out of every model.

    Args:
        grid: the runs.
        corpus: whose documents.

    Returns:
        From a table with a column `id` those rows that a hierarchical model analysed; all rows
        where there is no hierarchical model.
    """
    for model in grid.models:
        result = grid.cells.get((corpus, model))
        if result is not None and result.run.source.get("item") == "sentences":
            table = result.table("instances", ["id", "excluded"])
            kept = set(table.loc[table["excluded"] == "", "id"])
            return lambda rows: rows[rows["id"].isin(kept)]
    return lambda rows: rows
