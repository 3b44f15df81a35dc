"""Tables of the erasure experiments, one row a model and ranking, from saved results alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.statistics.paired import Paired, compare
from fastattnerase.studies.serrano_smith.config import CELLS, RULES
from fastattnerase.studies.serrano_smith.counted import Spread
from fastattnerase.studies.serrano_smith.findings import Finding, findings
from fastattnerase.studies.serrano_smith.grid import Grid, arrange, without_single_sentences
from fastattnerase.studies.serrano_smith.paper_claims import over_half
from fastattnerase.studies.serrano_smith.records import Architecture, architecture
from fastattnerase.studies.serrano_smith.result import Pair, Result

with needs("report"):
    import pandas as pd

UNKNOWN = "not recorded"  # which data a run erased from
MAJORITY = "Always the most frequent class"
STATISTICS = ("mean", "q1", "median", "q3")


def tables(
    results: Sequence[Result],
    of_seeds: Sequence[Result] = (),
    found: Sequence[Finding] | None = None,
) -> dict[str, pd.DataFrame]:
    """Make every table of a report.

    Args:
        results: finished runs.
        of_seeds: the runs of one seed each that `results` join; they have rows after these.
        found: the findings on `results`, where they are known.

    Returns:
        By name: `models`, `multi_weight`, `single_weight`, `contingency`, `pairs`, `exclusions`
        and `findings`, and of several seeds `seeds`: each number over all of them (`all`), its
        mean, standard deviation and ends over the seeds, and that of each (`OverSeeds`). Estimates
        take three columns: the value, `…_low` and `…_high`, the ends of its interval. In
        `multi_weight`, `all_…` are over all instances, one that a ranking never flips as beyond
        every fraction and gap (`inf`; in the mean of fractions as 1), and `fraction_…`, `mass_…`
        and `gap_…` over those that it flips, the paper's convention; `over_half` is the share that
        needs more than half of the items (figure 6); `flipped` and `never` are
        instances, the mean over random orders. How far from the exact smallest set:
        `all_gap_…`, `skill` and `share_optimal` in `multi_weight`, `share_optimal` of
        the better ranking in `pairs`, `any_item_flips`, the share in which some item flips the
        decision alone, in the two single-weight tables.

    Example:
        >>> from fastattnerase.studies.serrano_smith.tables import tables
        >>> sorted(tables([]))[:3]
        ['contingency', 'exclusions', 'findings']
    """
    rows = number_tables((*results, *of_seeds))
    checked = [
        finding._replace(corpus=finding.corpus or UNKNOWN)._asdict()
        for finding in (findings(arrange(results)) if found is None else found)
    ]
    made = {
        table: pd.DataFrame(records) for table, records in (rows | {"findings": checked}).items()
    }
    joined = [row for result in results for row in _over_seeds(result)]
    return made | ({"seeds": pd.DataFrame(joined)} if joined else {})


def number_tables(
    results: Sequence[Result],
    halves: Callable[[Result, str], tuple[float | None, float | None]] = over_half,
) -> dict[str, list[dict[str, Any]]]:
    """Make the rows of the tables of `tables` that hold numbers of one run each.

    Args:
        results: finished runs.
        halves: what gives the shares over half of a run's ranking.

    Returns:
        By name of the table.
    """
    rows: dict[str, list[dict[str, Any]]] = {
        "models": [],
        "multi_weight": [],
        "single_weight": [],
        "contingency": [],
        "pairs": [],
        "exclusions": [],
    }
    for result in results:
        name = {"model": result.run.name, "seed": " ".join(map(str, result.seeds))}
        rows["models"].append(name | _model(result))
        rows["multi_weight"] += [name | row for row in _multi(result, halves)]
        rows["single_weight"] += [name | row for row in _single(result)]
        rows["contingency"] += [name | row for row in _contingency(result)]
        rows["pairs"] += [name | row for row in _pairs(result)]
        rows["exclusions"] += [name | row for row in _exclusions(result)]
    return rows


def _over_seeds(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.over_seeds:
        yield {
            "model": result.run.name,
            "quantity": record.quantity,
            "ranking": record.ranking,
            "seeds": record.spread.seeds,
            **_flat("all", record.estimate),
            "mean": record.spread.mean,
            "sd": record.spread.sd,
            "least": record.spread.least,
            "most": record.spread.most,
            "by_seed": " ".join("–" if v is None else f"{v:.4g}" for v in record.values),
        }


def _flat(name: str, estimate: Estimate) -> dict[str, float | None]:
    return {
        name: estimate.value,
        f"{name}_low": estimate.low,
        f"{name}_high": estimate.high,
    }


def _spread(name: str, spread: Spread) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for statistic in STATISTICS:
        columns |= _flat(f"{name}_{statistic}", getattr(spread, statistic))
    return columns


def _model(result: Result) -> dict[str, Any]:
    counts = result.counts
    return {
        "instances": counts.instances,
        "accuracy": counts.accuracy,
        "majority": counts.majority,
        **{f"excluded_{reason}": count for reason, count in counts.excluded.items()},
        "analysed": counts.analysed,
        "label_is_bias_label": counts.label_is_bias_label,
        "near_ties": counts.near_ties,
        "compared_with_model": counts.compared_with_model,
        "label_differs_from_model": counts.label_differs_from_model,
        **_skew(result),
        **_flat("uniform_js_mean", result.uniform.js.mean),
        **_flat("attention_gap_median", result.multi["attention"].counted.gap.median),
        **_flat("attention_skill", result.multi["attention"].counted.skill.overall),
    }


def _multi(
    result: Result, halves: Callable[[Result, str], tuple[float | None, float | None]]
) -> Iterator[dict[str, Any]]:
    for record in result.multi.values():
        columns = ("ranking", "orders", "instances")
        row: dict[str, Any] = {name: getattr(record, name) for name in columns}
        row |= {"flipped": record.flipped_instances, "never": record.never_instances}
        row |= _flat("share_flipped", record.share_flipped)
        row |= _flat("share_optimal", record.share_optimal)
        row |= _flat("skill", record.counted.skill.overall)
        row["skill_undefined"] = record.counted.skill.undefined
        row |= _spread("skill_of_instances", record.counted.skill.spread)
        row |= _spread("all_fraction", record.counted.fraction)
        row |= _spread("all_gap", record.counted.gap)
        row |= _spread("fraction", record.fraction)
        row |= _spread("mass", record.mass)
        row |= _spread("gap", record.gap)
        row |= _spread("common_fraction", record.common)
        row["over_half"], row["all_over_half"] = halves(result, record.ranking)
        if record.ranking == "attention":
            row |= _skew(result)
        yield row


def _single(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.single.values():
        row: dict[str, Any] = {"ranking": record.ranking, "instances": record.instances}
        if record.ranking == "attention":
            row |= _skew(result)
        row |= _flat("negative_delta_js", record.negative_delta_js)
        row |= _flat("expected_negative", record.expected_negative)
        row |= _flat("any_item_flips", record.share_any_item_flips)
        cells = record.contingency
        test = compare(cells["only_top"].count, cells["only_random"].count)
        row |= _test(_over_all(result, test, record.p_mcnemar, record.p_sign))
        row |= _spread("delta_js", record.delta_js)
        row |= _spread("delta_alpha", record.delta_alpha)
        yield row | _spread("expected_delta_js", record.expected_delta_js)


def _over_all(result: Result, test: Paired, p_mcnemar: float, p_sign: float) -> Paired:
    """Give the test of discordant pairs; of several seeds with the levels that the run has."""
    if len(result.seeds) > 1:
        return test._replace(p_mcnemar=p_mcnemar, p_sign=p_sign, exact=False)
    return test


def _skew(result: Result) -> dict[str, float | None]:
    """Say beside numbers of attention how far it is from even."""
    kl, largest = result.uniform.kl.mean, result.uniform.largest.mean
    return _flat("uniform_kl_mean", kl) | _flat("largest_weight_mean", largest)


def _test(test: Paired) -> dict[str, Any]:
    """Name McNemar's test and the sign test of discordant pairs, and whether the first is exact."""
    return {
        "mcnemar": test.statistic,
        "p_mcnemar": test.p_mcnemar,
        "mcnemar_exact": test.exact,
        "p_sign": test.p_sign,
    }


def _contingency(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.single.values():
        for cell in (*CELLS, "same_item"):
            row: dict[str, Any] = {
                "ranking": record.ranking,
                "random_item": result.run.config.random_item,
                "cell": cell,
            }
            if cell in CELLS:
                drawn = record.contingency[cell]
                row |= {"count": drawn.count, **_flat("share", drawn.estimate)}
            for rule in RULES:
                row |= _flat(f"expected_{rule}", record.expected_contingency[rule][cell])
            yield row | _flat("any_item_flips", record.share_any_item_flips)


def _pairs(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.pairs.values():
        row: dict[str, Any] = {}
        for field in dataclasses.fields(Pair):
            if field.name == "p_mcnemar":
                test = compare(record.flips_only_first, record.flips_only_second)
                test = _over_all(result, test, record.p_mcnemar, record.p_sign)
                row |= {"p_mcnemar": test.p_mcnemar, "mcnemar_exact": test.exact}
            elif field.name != "share_first_smaller":
                row[field.name] = getattr(record, field.name)
        yield row | _flat("share_first_smaller", record.share_first_smaller)


def _exclusions(result: Result) -> Iterator[dict[str, Any]]:
    """Count what the paper's words leave out, and what its code left out."""
    counts = result.counts
    never = counts.never_flip
    single = counts.excluded["length_1"]
    yield {"convention": "paper and code", "what": "length 1", "instances": single}
    yield {
        "convention": "paper",
        "what": "decision never changed under any ranking",
        "instances": never.paper,
    }
    for ranking, count in never.code.items():
        yield {"convention": "code", "what": f"never flips by {ranking}", "instances": count}
    yield {
        "convention": "neither",
        "what": "kept: flips under all rankings",
        "instances": never.flip_under_all,
    }


# --- the paper's tables --------------------------------------------------------------------------


def paper_tables(grid: Grid) -> dict[str, pd.DataFrame]:
    """Make tables 1 to 3 in the paper's form, and the tables of its figures 9, 12 and 13.

    Args:
        grid: the runs.

    Returns:
        By name: `table-1` (data sets; empty where runs are of no study), `table-2` (decision flips
        of the HANrnn, or of all models), `table-3` (accuracies in percent; beside them that of
        deciding the most frequent class always, and the paper's where a corpus is one of its own),
        `figure-09`, `figure-12`, `figure-13` (decision
        flips of all models by attention, gradient and product) and `section-5-4` (share of
        documents in which the gradient flips first; documents of one sentence are left out of all
        models where a hierarchical one tells which).

    Source:
        Serrano and Smith 2019.
    """
    recurrent = grid.some(Architecture("han", "rnn").__eq__)
    return {
        "table-1": _corpora(grid),
        "table-2": _flips(grid, recurrent, "attention"),
        "table-3": _accuracies(grid),
        "figure-09": _flips(grid, grid.models, "attention"),
        "figure-12": _flips(grid, grid.models, "gradient"),
        "figure-13": _flips(grid, grid.models, "product"),
        "section-5-4": _gradient_first(grid),
    }


def _corpora(grid: Grid) -> pd.DataFrame:
    rows = []
    for corpus in grid.corpora:
        result = next(r for (name, _), r in grid.cells.items() if name == corpus)
        about = result.run.source.get("statistics")
        if about is None:
            continue
        documents = about["documents"]
        rows.append(
            {
                "Dataset": corpus,
                "Av. # Words": round(about["words_mean"]),
                "(s.d.) words": round(about["words_sd"]),
                "Av. # Sents.": round(about["sentences_mean"], 1),
                "(s.d.) sents.": round(about["sentences_sd"], 1),
                "# Train. + Dev.": documents["train"] + documents["dev"],
                "# Test": documents["test"],
                "# Classes": len(about["classes"]),
            }
        )
    return pd.DataFrame(rows)


def _flips(grid: Grid, models: Sequence[str], ranking: str) -> pd.DataFrame:
    rows = []
    for model in models:
        for corpus, result in grid.row(model):
            record = result.single[ranking]
            row: dict[str, Any] = {"Dataset": corpus or UNKNOWN, "Model": model}
            for cell, title in zip(
                CELLS, ("both flip", "only i* flips", "only r flips", "neither"), strict=True
            ):
                row[title] = _percent(record.contingency[cell].value)
            row["some item flips"] = _percent(record.share_any_item_flips.value)
            rows.append(row | {"instances": record.instances})
    return pd.DataFrame(rows)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)


def _accuracies(grid: Grid) -> pd.DataFrame:
    """Give accuracies by corpus and model, the majority class and the paper's beside them."""
    rows: list[dict[str, Any]] = []
    for corpus in grid.corpora:
        models = [model for model in grid.models if (corpus, model) in grid.cells]
        # Nothing says that runs whose records name no data are of the same.
        for group in [models] if corpus else [[model] for model in models]:
            rows += _accuracy_rows(grid, corpus, group)
    return pd.DataFrame(rows)


def _accuracy_rows(grid: Grid, corpus: str, models: list[str]) -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {"Dataset": corpus or UNKNOWN, MAJORITY: None}
    row |= dict.fromkeys(grid.models)
    paper: dict[str, Any] = {}
    for model in models:
        result = grid.cells[corpus, model]
        counts, about = result.counts, result.run.source.get("paper")
        row[model] = _percent(counts.accuracy)
        row[MAJORITY] = _percent(counts.majority) if row[MAJORITY] is None else row[MAJORITY]
        parts = architecture(result)
        if about is None or parts is None:
            continue
        # Presets bring torch, which pages of other corpora do without.
        from fastattnerase.studies.serrano_smith.presets import published_accuracy

        published = published_accuracy(about, parts.kind, parts.encoder)
        if published is not None:
            paper |= {"Dataset": f"{about} (paper)", model: published}
    yield row
    if paper:
        yield paper


def _gradient_first(grid: Grid) -> pd.DataFrame:
    rows = []
    for corpus in grid.corpora:
        several = without_single_sentences(grid, corpus)
        for model in grid.models:
            result = grid.cells.get((corpus, model))
            if result is None:
                continue
            ids = several(result.table("instances", ["row", "id", "excluded"]))
            flips = result.table("multi", ["row", "ranking", "order", "first_flip"])
            flips = flips[(flips["order"] == 0) & flips["row"].isin(ids["row"])]
            wide = flips.pivot(index="row", columns="ranking", values="first_flip")
            share = None
            if len(wide):
                gradient, attention = wide["gradient"], wide["attention"]
                wins = (gradient > 0) & ((attention < 0) | (gradient < attention))
                share = round(float(wins.mean()), 4)
            rows.append(
                {
                    "Dataset": corpus or UNKNOWN,
                    "Model": model,
                    "gradient first": share,
                    "documents": len(wide),
                }
            )
    return pd.DataFrame(rows)
