"""The erasure experiments of Serrano and Smith, "Is Attention Interpretable?" (ACL 2019).

Single-weight test (section 4): the top item of a ranking against a random other one, each erased
alone. Multi-weight test (section 5): how many items of a ranking must go before the decision
changes, and which of two rankings needs fewer (section 5.4). Beyond the paper: the exact
expectation over the random item under each rule of drawing it, and the exact minimal set.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastattnerase.data.kept import KEPT
from fastattnerase.extras import needs
from fastattnerase.runs import rundir
from fastattnerase.runs.lock import alone
from fastattnerase.runs.progress import Report, silent
from fastattnerase.runs.records import to_json
from fastattnerase.sources import Source
from fastattnerase.studies.serrano_smith import exhibits
from fastattnerase.studies.serrano_smith.aggregates import aggregate
from fastattnerase.studies.serrano_smith.config import (
    DOCUMENTS,
    ERASING,
    FORMAT,
    INTERVALS,
    KIND,
    TABLES,
    Config,
)
from fastattnerase.studies.serrano_smith.erasure import head_bias, measure
from fastattnerase.studies.serrano_smith.instance_tables import schemas
from fastattnerase.studies.serrano_smith.result import Head, Result, load

with needs("text"):
    import pyarrow as pa

_PART = 2048  # instances in one part of the tables, and at most one more batch


def run(
    source: Source,
    config: Config,
    folder: Path,
    *,
    name: str,
    report: Report = silent,
) -> Result:
    """Erase, measure, aggregate, and write everything into a run directory.

    Instances stream through: memory does not grow with their number, but for one column of
    results at a time while aggregating. A run that was interrupted goes on where it stopped; a
    finished one with the same configuration and source is returned as it is, under the name given
    now.

    Args:
        source: the instances.
        config: the experiment.
        folder: the run directory; created where absent.
        name: of the model, for reports.
        report: told how far each stage of `config.COSTS` is.

    Returns:
        The finished run.

    Raises:
        RunError: the directory holds results of another configuration or source, or another
            process is writing there.

    Source:
        Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> import tempfile, torch
        >>> import fastattnerase as fae
        >>> from pathlib import Path
        >>> from fastattnerase.sources import Chunk
        >>> from fastattnerase.studies.serrano_smith.config import Config
        >>> from fastattnerase.studies.serrano_smith.experiment import run
        >>> class Two:
        ...     classes = ["no", "yes"]
        ...     def __len__(self):
        ...         return 1
        ...     def chunks(self, start):
        ...         if start == 0:
        ...             yield Chunk(fae.AttentionBatch(
        ...                 torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 2]),
        ...                 weights=torch.tensor([0.5, 0.5]),
        ...                 head_weight=torch.tensor([[0.0], [1.0]]), head_bias=torch.zeros(2)))
        ...     def select(self, rows):
        ...         return self.chunks(0)
        ...     def describe(self):
        ...         return {"what": "two items"}
        >>> with tempfile.TemporaryDirectory() as tmp:
        ...     r = run(Two(), Config(resamples=10), Path(tmp) / "run", name="two")
        ...     [row["first_flip"] for _, row in r.table("multi").iterrows()][1:]
        [1, 1, 1, 1, 1]
    """
    state = {
        "kind": KIND,
        "format": FORMAT,
        "config": config.to_dict(),
        "source": source.describe(),
    }
    with alone(folder):
        if not rundir.begin(folder, state, name=name, about={"classes": source.classes}):
            _write(source, config, folder, state, report)
    return load(folder)


def _write(
    source: Source,
    config: Config,
    folder: Path,
    state: Mapping[str, Any],
    report: Report,
) -> None:
    """Erase what is left of the instances, and write the tables and the result."""
    kinds = schemas(config)
    # Parts of a version with other columns are not gone on with.
    columns = {"columns": {name: schema.names for name, schema in kinds.items()}}
    tables = rundir.PartialTables(folder, list(kinds), {**state, **columns})
    done = tables.rows()
    report(ERASING, done, len(source))
    pending: list[dict[str, pa.Table]] = []
    with rundir.Merging(tables, kinds) as merging:
        merging.go_on()  # with what is there of an interrupted run
        for chunk in source.chunks(done):
            pending.append(measure(chunk, config, first_row=done))
            done += pending[-1]["instances"].num_rows
            if sum(part["instances"].num_rows for part in pending) >= _PART:
                tables.append(_concatenate(pending))
                pending.clear()
                merging.go_on()
            report(ERASING, done, len(source))
        if pending:
            tables.append(_concatenate(pending))
        merging.finish(partial(report, TABLES))
    report(DOCUMENTS, 0, 1)
    shown = exhibits.choose(source, config, folder)
    report(DOCUMENTS, 1, 1)
    found = aggregate(folder, config, _head(source), shown, partial(report, INTERVALS))
    rundir.write_json(folder / rundir.RESULT, to_json(found))
    tables.discard()
    (folder / KEPT).unlink(missing_ok=True)


def _head(source: Source) -> Head:
    """Say what of the head matters for reading the results: classes and bias."""
    for chunk in source.select([0]) if len(source) else ():
        bias = head_bias(chunk.batch)
        # A bias that is not finite is no number in JSON, and nothing follows from it.
        usable = bias.dim() == 1 and bool(bias.isfinite().all())
        return Head(bias.shape[-1], tuple(bias.tolist()) if usable else None)
    return Head(len(source.classes), None)


def _concatenate(parts: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}
