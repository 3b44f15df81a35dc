"""The report: one HTML file that opens from disk, with figures and tables as files beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.report import heatmap, page
from fastattnerase.report.figures import FORMATS, inline
from fastattnerase.report.figures import save as save_figure
from fastattnerase.report.tables import save as save_table
from fastattnerase.runs.progress import Report, silent, tracked
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith import (
    exact_figures,
    exact_tables,
    exact_words,
    figures,
    full_figures,
    judgement,
    paper_figures,
    residual,
    seed_rows,
    sentences,
)
from fastattnerase.studies.serrano_smith.config import (
    DESCRIBING,
    DRAWING,
    EXCLUSIONS,
    LISTING,
    SINGLE_RANKINGS,
    WRITING,
)
from fastattnerase.studies.serrano_smith.documents import KEPT, documents
from fastattnerase.studies.serrano_smith.exact import Exact, describe, made
from fastattnerase.studies.serrano_smith.findings import findings, tally
from fastattnerase.studies.serrano_smith.grid import arrange
from fastattnerase.studies.serrano_smith.looks import Look, looks
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.summary import summarise
from fastattnerase.studies.serrano_smith.tables import paper_tables, tables

with needs("report"):
    import pandas as pd
    from markupsafe import Markup
    from matplotlib.figure import Figure

PAGE = "report.html"
MOST_BYTES = 4_000_000  # of the documents in a page, all models together
_PANELS = 4  # models at most that the page begins with a panel for each of
_WIDE = 1100  # pixels from which on a picture is as wide as the page
_LABELS = {
    "fractions": "Box plots of the fraction of items erased at the first decision flip, a box for "
    "each ranking; instances that it never flips are beyond everything.",
    "divergences": "Scatter plot of the difference in output divergence against the difference in "
    "attention.",
    "gaps": "Cumulative distribution of items erased as a multiple of the smallest flipping set, "
    "a line for each ranking.",
}
_LEFT_OUT = "By the paper’s convention, what a ranking never flips is left out of its box."
_CAPTIONS = {
    "figure-03": "Figure 3: ΔJS against Δα, {models}, thinned and clipped as in the paper.",
    "figure-04": "Figure 4: instances with a negative ΔJS by Δα, {models}.",
    "figure-05": "Figure 5: fraction erased at the first flip, {models}. " + _LEFT_OUT,
    "figure-06": "Figure 6: fraction erased at the first flip, {models}. " + _LEFT_OUT,
    "figure-07": "Figure 7: ΔJS against Δα, all models.",
    "figure-08": "Figure 8: instances with a negative ΔJS by Δα, all models.",
    "figure-09": "Figure 9: decision flips of the item with most attention and of a random one.",
    "figure-10": "Figure 10: fraction erased at the first flip, all models. " + _LEFT_OUT,
    "figure-11": "Figure 11: attention mass erased at the first flip, all models. " + _LEFT_OUT,
    "figure-12": "Figure 12: as figure 9, for the item with the largest gradient.",
    "figure-13": "Figure 13: as figure 9, for the item with the largest product of the two.",
    "figure-03-density": "For figures 3 and 7: all instances as density; median and quartiles of "
    "ΔJS along Δα.",
    "figure-04-shares": "For figures 4 and 8: share of negative ΔJS along Δα, with 95 % intervals; "
    "above, how many instances there are.",
    "figure-05-curves": "For figures 5, 6 and 10: decisions changed against the fraction erased. "
    "Instances that never flip count, so curves end below 1; all random orders; the smallest set.",
    "figure-09-rules": "For figure 9 and table 2: exact expectations under each rule of drawing r, "
    "with intervals. Under the published code’s rule r can be i* itself.",
    "figure-10-medians": "For figures 5, 6 and 10: medians with intervals over all instances; one "
    "that a ranking never flips is beyond every fraction.",
    "figure-11-medians": "For figure 11: medians with intervals, over the instances that flip by "
    "the ranking, as in the paper.",
    "section-5-4-pairs": "For section 5.4: how often a ranking needs fewer items than another.",
}
_MEDIANS = "figure-10-medians"
_RANDOM_ITEM = {
    "different": "uniformly among the items but the top one",
    "uniform": "uniformly among all items, so that it can be the top one",
    "legacy": "as in the published code: among all items but the first, the top one included",
}


def build(
    results: Sequence[Result],
    folder: Path,
    report: Report = silent,
    of_seeds: Sequence[Result] = (),
    all_figures: bool = True,
    pdf: bool = True,
) -> Path:
    """Write a report on one run or several, side by side.

    Args:
        results: finished runs, with distinct names.
        folder: where to: `report.html`, `tables/*.{csv,tex}`, and in `paper` the paper's tables as
            CSV and LaTeX; with all figures `figures/*.{png,svg,pdf}`, and the paper's as PNG and
            PDF in `paper`.
        report: told how many figures are drawn and tables written, of how many.
        of_seeds: the runs that `results` join, where these are of several seeds each; for rows of
            their own in the tables.
        all_figures: whether the paper's figures are drawn for the page, in its own form and in one
            that hides nothing, and all figures written as files, which takes most of the time;
            without them the page has three panels a model.
        pdf: whether files of figures are written as PDF, too.

    Returns:
        The page's path.

    Raises:
        RunError: no runs, or two of one name.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.report import build
        >>> from fastattnerase.studies.serrano_smith.result import load
        >>> build([load(Path("run"))], Path("out"))  # doctest: +SKIP
    """
    names = [result.run.name for result in results]
    if not names:
        raise RunError("runs: given none, needed at least one to report on")
    if len(set(names)) < len(names):
        raise RunError(
            f"names of runs: given {', '.join(names)}, needed distinct ones (erase --name)"
        )
    for part in ("tables", "paper", *(("figures",) if all_figures else ())):
        (folder / part).mkdir(parents=True, exist_ok=True)
    said = [describe(result) for result in tracked(results, len(results), DESCRIBING, report)]
    parts = made(said)
    grid = arrange(results)
    crowded = len(results) > _PANELS
    count = len(figures.FIGURES) * len(results) + crowded
    if all_figures:
        count += len(figures.FIGURES) + len(_CAPTIONS)
        count += sum(len(exact_figures.OF_PART[part]) for part in parts)
    drawn = _Drawn(partial(report, DRAWING), count, pdf)
    panels = {result.run.name: _panels(result, drawn) for result in results}
    of_paper: list[dict[str, Any]] = []
    better: list[dict[str, Any]] = []
    of_exact: dict[str, list[dict[str, Any]]] = {part: [] for part in parts}
    if all_figures:
        for name, draw in figures.FIGURES.items():
            drawn.save(figures.side_by_side(draw, results), folder / "figures" / name)
        for name, figure in paper_figures.figures(grid):
            drawn.save(figure, folder / "paper" / name, kinds=("png", "pdf"))
            shown = ", ".join(paper_figures.models_of(name, grid))
            caption = _CAPTIONS[name].format(models=shown)
            of_paper.append(_picture(folder / "paper" / f"{name}.png", caption))
        for name, figure in full_figures.figures(grid):
            drawn.save(figure, folder / "figures" / name, kinds=("png", "pdf"))
            better.append(_picture(folder / "figures" / f"{name}.png", _CAPTIONS[name]))
        for part, name, figure in exact_figures.figures(
            grid, dict(zip(names, said, strict=True)), parts
        ):
            drawn.save(figure, folder / "figures" / name, kinds=("png", "pdf"))
            picture = _picture(folder / "figures" / f"{name}.png", exact_figures.CAPTIONS[name])
            of_exact[part].append(picture)
    medians = None
    if crowded:
        medians = Markup(inline(full_figures.median_fractions(grid), _CAPTIONS[_MEDIANS]))
        drawn.another()
    found, summary = findings(grid), summarise(results)
    paper_form, own = paper_tables(grid), tables(results, of_seeds, found)
    own |= exact_tables.exact_tables(results, said)
    files = [
        (folder / place / name, table)
        for place, of_place in (("tables", own), ("paper", paper_form))
        for name, table in of_place.items()
    ]
    for path, table in tracked(files, len(files), LISTING, report):
        numbers = "%.1f" if path.name.startswith(("table-", "figure-")) else "%.4g"
        save_table(table, path, numbers)

    return page.write(
        folder / PAGE,
        "fastattnerase.studies.serrano_smith",
        "report.html.j2",
        filters={
            "percent": sentences.percent,
            "number": sentences.number,
            "times": sentences.times,
            "count": _count,
            "endless": seed_rows.endless,
        },
        models=[
            _model(result, plain, panels[result.run.name], MOST_BYTES // len(results))
            for result, (_, plain) in tracked(
                zip(results, summary.models, strict=True), len(results), WRITING, report
            )
        ],
        next_steps=summary.next_steps,
        over_seeds=[
            (name, seeds, [*rows, *exact_tables.seed_rows(exact)])
            for result, exact in zip(results, said, strict=True)
            for name, seeds, rows in seed_rows.shown(result)
        ],
        exact=_exact(results, said, of_exact, looks(*results)),
        exact_lacking=exact_words.lacking(results, said),
        medians=medians,
        opening=summary.opening,
        nearly_even=[result.run.name for result in results if judgement.is_even(result)],
        all_figures=all_figures,
        pdf=pdf,
        kept=KEPT,
        most_bytes=MOST_BYTES,
        files=[(name, page.embedded(folder / "tables" / f"{name}.csv")) for name in own],
        grid=grid,
        findings=found,
        tally=tally(found),
        accuracies=_shown(paper_form["table-3"]),
        corpora=_shown(paper_form["table-1"]),
        paper_figures=of_paper,
        better_figures=better,
        names={ranking: look.name for ranking, look in looks(*results).items()},
        colours={ranking: look.colour for ranking, look in looks(*results).items()},
        excluded=EXCLUSIONS,
        rests={result.run.name: residual.left(result) for result in results},
        transformers=sum(map(residual.is_transformer, results)),
        random_item=_RANDOM_ITEM,
        single_rankings=SINGLE_RANKINGS,
        good=judgement.GOOD,
        fair=judgement.FAIR,
        even=judgement.EVEN,
    )


def _exact(
    results: Sequence[Result],
    said: Sequence[Exact],
    pictures: dict[str, list[dict[str, Any]]],
    named: dict[str, Look],
) -> list[dict[str, Any]]:
    """Gather what the page shows of each part of the chapter on exact erasure."""
    names = {ranking: look.name for ranking, look in named.items()}
    of_page = exact_tables.page_tables(results, said, names)
    over = exact_words.over_runs(results, said)
    texts = {
        result.run.name: exact_words.of_run(result, exact)
        for result, exact in zip(results, said, strict=True)
    }
    return [
        {
            "title": exact_words.PARTS_SAY[part][0],
            "lead": exact_words.PARTS_SAY[part][1],
            "over": over.get(part, ""),
            "pictures": shown,
            "texts": [(name, of_run[part]) for name, of_run in texts.items() if part in of_run],
            "table": of_page[part],
        }
        for part, shown in pictures.items()
    ]


def _shown(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Give the titles and cells of a table as text."""
    cells = [
        ["–" if pd.isna(value) else str(value) for value in row]
        for row in table.itertuples(index=False, name=None)
    ]
    return [str(title) for title in table.columns], cells


def _picture(path: Path, caption: str) -> dict[str, Any]:
    """Embed a PNG; where its width, which stands in its head, is large, it has a row of its own."""
    width = int.from_bytes(path.read_bytes()[16:20], "big")
    return {
        "name": path.stem,
        "caption": caption,
        "picture": page.embedded(path),
        "wide": width > _WIDE,
    }


class _Drawn:
    """Saves figures, each once, and reports how many there are.

    Args:
        report: told how many figures are drawn, of how many.
        count: of the figures.
        pdf: whether they are saved as PDF, too.
    """

    def __init__(self, report: Callable[[int, int], None], count: int, pdf: bool) -> None:
        self._report = report
        self._count = count
        self._pdf = pdf
        self._done = 0
        self._saved: dict[Figure, Path] = {}
        report(0, count)

    def save(self, figure: Figure, path: Path, kinds: Sequence[str] = FORMATS) -> None:
        """Save a figure; one that was saved under another name is copied."""
        kinds = [kind for kind in kinds if self._pdf or kind != "pdf"]
        before = self._saved.setdefault(figure, path)
        if before == path:
            save_figure(figure, path, kinds)
        else:
            for kind in kinds:
                shutil.copyfile(f"{before}.{kind}", f"{path}.{kind}")
        self.another()

    def another(self) -> None:
        """Count one more figure."""
        self._done += 1
        self._report(self._done, self._count)


def _panels(result: Result, drawn: _Drawn) -> dict[str, Markup]:
    """Draw the panels of a model for the page."""
    found = {}
    for name, draw in figures.FIGURES.items():
        # Labels come from this module and names are escaped: the markup is ours.
        label = f"{result.run.name}: {_LABELS[name]}"
        found[name] = Markup(inline(figures.panel(draw, result), label))
        drawn.another()
    return found


def _model(
    result: Result, plain: str, panels: dict[str, Markup], most_bytes: int
) -> dict[str, Any]:
    name = result.run.name
    shown = documents(result)
    return {
        "name": name,
        "run": result.run,
        "counts": result.counts,
        "multi": result.multi,
        "uniform": result.uniform,
        "skew": sentences.skew(result),
        "single": result.single,
        "pairs": result.pairs.values(),
        "plain": plain,
        "notices": sentences.notices(result),
        "verdict": sentences.verdict(result),
        "facts": sentences.facts(result),
        "typical_gap": sentences.typical_gap(result, "attention"),
        "paragraphs": sentences.paragraphs(result),
        "figures": panels,
        "documents": len(shown),
        # It escapes what it is given.
        "heat": Markup(
            heatmap.render(
                shown,
                result.run.classes,
                looks={r: (look.name, look.colour) for r, look in looks(result).items()},
                sentences=result.run.source.get("item") == "sentences",
                a_page=max(result.run.config.exhibits, 1),
                most_bytes=most_bytes,
                assets=False,
            )
        ),
        "settings": _flatten(
            {
                "config": result.run.config.to_dict(),
                "source": result.run.source,
                "versions": result.run.versions,
                "machine": result.run.machine,
            }
        ),
    }


def _count(number: float) -> str:
    """Write a number of instances, a mean over several orders with one decimal."""
    return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"


def _flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, dict):
            rows += _flatten(value, f"{name} · ")
        elif value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows.append((name, shown))
    return rows
