"""Runs by corpus and model: which panel, row or column of a figure or table they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fastattnerase.extras import needs
from fastattnerase.studies.serrano_smith.records import Architecture, architecture, corpora
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.study import MODELS

with needs("report"):
    import pandas as pd


@dataclass(frozen=True)
class Grid:
    """Finished runs by corpus and model.

    Attributes:
        corpora: in the order of the runs.
        models: those of the paper's parts in its order, then others in the order of the runs.
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

    def some(self, wanted: Callable[[Architecture], bool]) -> tuple[str, ...]:
        """Give the models whose records fulfil a condition; all models where none does."""
        found = {
            model
            for (_, model), result in self.cells.items()
            if (parts := architecture(result)) is not None and wanted(parts)
        }
        return tuple(model for model in self.models if model in found) or self.models

    def title(self, corpus: str, model: str) -> str:
        """Title a panel: corpus and model, the model alone where there is one corpus."""
        return " ".join(filter(None, (corpus, model))) if len(self.corpora) > 1 else model


def places(
    grid: Grid, models: Sequence[str], most: int
) -> tuple[tuple[int, int], dict[tuple[int, int], tuple[str, str]]]:
    """Place a panel for each corpus and model in a figure.

    Args:
        grid: the runs.
        models: of the figure.
        most: columns where panels follow one another.

    Returns:
        How many rows and columns there are, and corpus and model by row and column. With several
        models and corpora a row is a model and a column a corpus; else panels follow one another.
    """
    cells = [(corpus, model) for model in models for corpus, _ in grid.row(model)]
    if len(models) > 1 and len(grid.corpora) > 1:
        found = {
            (models.index(model), grid.corpora.index(corpus)): (corpus, model)
            for corpus, model in cells
        }
        return (len(models), len(grid.corpora)), found
    columns = max(1, min(most, len(cells)))
    shape = max(1, -(-len(cells) // columns)), columns
    return shape, {divmod(number, columns): cell for number, cell in enumerate(cells)}


def without_run(grid: Grid, models: Sequence[str]) -> dict[tuple[int, int], tuple[str, str]]:
    """Find the places of a figure without a run of the model on the corpus, which stay empty.

    Args:
        grid: the runs.
        models: of the figure.

    Returns:
        Corpus and model by row and column of `places`; none where panels follow one another.
    """
    if len(models) < 2 or len(grid.corpora) < 2:
        return {}
    return {
        (row, column): (corpus, model)
        for row, model in enumerate(models)
        for column, corpus in enumerate(grid.corpora)
        if (corpus, model) not in grid.cells
    }


def arrange(results: Sequence[Result]) -> Grid:
    """Arrange runs by corpus and model, by what their records say.

    Args:
        results: finished runs, with distinct names. Corpora are those of `records.corpora`. Models
            of a study are called as the study calls them. Others are called by their parts where
            there are several corpora, so that one model is one row, and by their run's name on one
            corpus, where parts are unknown, and where two on one corpus have the same parts.

    Returns:
        The grid.
    """
    of_corpus = corpora(results)
    several = len(set(of_corpus)) > 1
    titles = [_title(result, several) for result in results]
    keys = list(zip(of_corpus, titles, strict=True))
    cells: dict[tuple[str, str], Result] = {}
    for (corpus, title), result in zip(keys, results, strict=True):
        name = result.run.name
        if title is None or keys.count((corpus, title)) > 1:
            # A name is no claim: it must not put a run into a row of models of these parts.
            title = f"{name} (run)" if name in titles else name
        cells[corpus, title] = result
    order = {
        model: _place(result)
        for (_, model), result in reversed(cells.items())  # of several the first says where
    }
    models = dict.fromkeys(model for _, model in cells)
    return Grid(
        tuple(dict.fromkeys(corpus for corpus, _ in cells)),
        tuple(sorted(models, key=lambda model: order[model])),
        cells,
    )


def _title(result: Result, several: bool) -> str | None:
    """Call a model by its record; None where it goes by its run's name."""
    study = result.run.source.get("architecture")
    parts = architecture(result)
    if study is not None:
        return str(study)
    return parts.title if parts is not None and several else None


def _place(result: Result) -> int:
    """Say where the paper has a model of these parts; all others come after."""
    parts = architecture(result)
    names = [] if parts is None else [parts.title]
    return next((MODELS.index(name) for name in names if name in MODELS), len(MODELS))


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
