"""Aggregates of a sweep's parts are those of a run of `erase` on the same instances."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sweeps.drawn import CONFIG, INSTANCES, MEMORY, Drawn, parts_of, sweep_of
from threadpoolctl import threadpool_limits

from fastattnerase.runs.rundir import RunError
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.result import Result, load
from fastattnerase.studies.serrano_smith.tables import number_tables
from fastattnerase.sweeps import records
from fastattnerase.sweeps.aggregate import Swept, aggregate_parts, aggregate_sweep, load_aggregate
from fastattnerase.sweeps.estimates import Estimates
from fastattnerase.sweeps.histograms import write_histograms
from fastattnerase.sweeps.wide import Columns


def both(
    tmp: Path, config: Config, heads: int = 1, **options: Any
) -> tuple[Result, Result, list[dict[str, Path]], Swept]:
    """Erase, and aggregate parts of the same instances."""
    source = Drawn(heads)
    run = experiment.run(source, config, tmp / "run", name="drawn")
    folder = tmp / "parts"
    folder.mkdir()
    parts = parts_of(source, config, folder)
    swept = Swept("drawn", config, run.head, ("a", "b", "c"), {"what": "drawn"}, INSTANCES)
    found = aggregate_parts(parts, swept, tmp / "aggregate", memory=MEMORY, **options)
    return run, found, parts, swept


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result]:
    config = replace(CONFIG, rankings=("greedy",))
    run, found, *_ = both(tmp_path_factory.mktemp("large"), config, bootstrapped=0)
    return run, found


def test_up_to_the_bootstrap_s_limit_every_byte_is_that_of_erase(tmp_path: Path) -> None:
    run, found, *_ = both(tmp_path, replace(CONFIG, random_orders=2))
    assert (found.folder / "result.json").read_bytes() == (run.folder / "result.json").read_bytes()
    for table in ("instances", "single", "multi", "erased"):
        pd.testing.assert_frame_equal(found.table(table), run.table(table))


def test_threads_of_matrix_products_change_no_bit(tmp_path: Path) -> None:
    _, found, parts, swept = both(tmp_path, CONFIG)
    for limit in (1, 2):
        with threadpool_limits(limits=limit, user_api="blas"):
            again = aggregate_parts(parts, swept, tmp_path / str(limit), memory=MEMORY)
        for path in ("result.json", "tables/multi_weight.csv"):
            assert (again.folder / path).read_bytes() == (found.folder / path).read_bytes()


def test_tables_are_those_of_a_report(tmp_path: Path) -> None:
    run, found, *_ = both(tmp_path, CONFIG)
    expected = number_tables([run])
    assert sorted(path.stem for path in (found.folder / "tables").glob("*.csv")) == sorted(expected)
    for name, rows in expected.items():
        written = (found.folder / "tables" / f"{name}.csv").read_text()
        assert written == pd.DataFrame(rows).to_csv(index=False)


def values_of(record: Any) -> Any:
    """Hide intervals: the numbers of a record, of an estimate its value alone."""
    if isinstance(record, Estimate):
        return record.value
    if dataclasses.is_dataclass(record):
        return {
            field.name: values_of(getattr(record, field.name))
            for field in dataclasses.fields(record)
            if field.name not in ("low", "high")
        }
    if isinstance(record, dict):
        return {str(key): values_of(value) for key, value in record.items()}
    return record


def assert_close(first: Any, second: Any, where: str = "") -> None:
    """Compare numbers: whole ones are equal, others to rounding."""
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_close(first[key], second[key], f"{where}/{key}")
    elif isinstance(first, float) and math.isfinite(first):
        assert second == pytest.approx(first, rel=1e-12, abs=1e-15), where
    else:
        assert first == second, where


@pytest.mark.parametrize("what", ["counts", "uniform", "single", "multi", "pairs", "head"])
def test_numbers_of_a_large_sweep_are_those_of_erase(
    large: tuple[Result, Result], what: str
) -> None:
    run, found = large
    assert_close(values_of(getattr(run, what)), values_of(getattr(found, what)))


def estimates_of(record: Any) -> Iterator[Estimate]:
    if isinstance(record, Estimate):
        yield record
    elif dataclasses.is_dataclass(record):
        for field in dataclasses.fields(record):
            yield from estimates_of(getattr(record, field.name))
    elif isinstance(record, dict):
        for value in record.values():
            yield from estimates_of(value)


def test_intervals_of_a_large_sweep_are_near_those_of_the_bootstrap(
    large: tuple[Result, Result],
) -> None:
    """Of 600 instances: where both are finite their widths are alike, mostly."""
    widths = []
    for what in ("uniform", "single", "multi", "pairs"):
        ours, theirs = (list(estimates_of(getattr(result, what))) for result in large[::-1])
        for own, other in zip(ours, theirs, strict=True):
            assert (own.value is None) == (other.value is None)
            if own.value is None or other.value is None:
                continue
            assert own.low is not None
            assert own.high is not None
            assert own.low <= own.value <= own.high
            ends = (own.low, own.high, other.low, other.high)
            if all(end is not None and math.isfinite(end) for end in ends):
                widths.append((own.high - own.low, (other.high or 0) - (other.low or 0)))
    ratios = [own / other for own, other in widths if other > 1e-9]
    assert len(ratios) > 100
    assert 0.8 < np.median(ratios) < 1.25


def test_csv_tables_of_a_large_sweep_have_the_numbers_of_erase(
    large: tuple[Result, Result],
) -> None:
    run, found = large
    for name, rows in number_tables([run]).items():
        table = pd.read_csv(found.folder / "tables" / f"{name}.csv")
        expected = pd.read_csv(StringIO(pd.DataFrame(rows).to_csv(index=False)))
        assert list(table) == list(expected)
        exact = [column for column in table if not str(column).endswith(("_low", "_high"))]
        pd.testing.assert_frame_equal(table[exact], expected[exact], check_dtype=False, rtol=1e-12)


def test_a_large_sweep_of_several_orders_and_heads(tmp_path: Path) -> None:
    """Orders are averaged as `erase` does; several attention heads have no smallest sets."""
    for number, (orders, heads) in enumerate(((3, 1), (1, 2))):
        folder = tmp_path / str(number)
        folder.mkdir()
        run, found, *_ = both(
            folder, replace(CONFIG, random_orders=orders), heads=heads, bootstrapped=0
        )
        for what in ("counts", "uniform", "single", "multi", "pairs"):
            assert_close(values_of(getattr(run, what)), values_of(getattr(found, what)), what)


def test_never_counted_as_everything_is_kept_apart(tmp_path: Path) -> None:
    """`never_flips` decides what fraction and mass of the paper's convention hold."""
    run, found, *_ = both(tmp_path, replace(CONFIG, never_flips="one"), bootstrapped=0)
    assert_close(values_of(run.multi), values_of(found.multi))


def test_a_large_sweep_twice_is_the_same_bytes(tmp_path: Path) -> None:
    _, found, parts, swept = both(tmp_path, CONFIG, bootstrapped=0)
    again = aggregate_parts(parts, swept, tmp_path / "again", memory=MEMORY, bootstrapped=0)
    for path in ("result.json", "histograms.csv", "sample.parquet", "tables/multi_weight.csv"):
        assert (found.folder / path).read_bytes() == (again.folder / path).read_bytes()
    assert not list(again.folder.glob("*.partial"))
    assert load_aggregate(again.folder).multi == again.multi


def test_histograms_count_every_instance_and_order(large: tuple[Result, Result]) -> None:
    run, found = large
    table = pd.read_csv(found.folder / "histograms.csv")
    own = table[(table["quantity"] == "fraction") & (table["ranking"] == "attention")]
    multi = run.table("multi")
    flips = multi[(multi["ranking"] == "attention")]
    lengths = run.table("instances").set_index("row")["n"].loc[flips["row"]].to_numpy()
    changed = (flips["first_flip"] > 0).to_numpy()
    np.testing.assert_array_equal(
        flips["fraction"][changed], flips["first_flip"][changed] / lengths[changed]
    )
    assert own["count"].sum() == len(flips)
    never = own[np.isinf(own["low"])]
    assert never["count"].sum() == (flips["first_flip"] < 0).sum()
    half = own[np.isclose(own["low"], 0.5)]
    inside = (flips["fraction"] >= 0.5) & (flips["fraction"] < 0.52)
    assert half["count"].sum() == inside.sum()
    smallest = table[(table["quantity"] == "gap") & (table["ranking"] == "minimal")]
    assert smallest[["low", "count"]].values.tolist() == [[1.0, run.counts.smallest_set.some]]


def test_a_fraction_at_the_end_of_a_bin_is_in_the_next(tmp_path: Path) -> None:
    """29 of 50 items: 29 / 50 * 50 is 28.999…, but the bin that begins with 0.58 has it."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    columns = Columns(CONFIG, smallest=False)
    flips = [(29, 50), (28, 50), (57, 100), (58, 100), (7, 7), (-1, 7)]
    names = {
        name: value
        for ranking in columns.numbers
        for name, value in (
            (columns.multi(ranking, "flip"), "flip"),
            (columns.multi(ranking, "fraction"), "flip / n"),
            (columns.multi(ranking, "gap"), "1.0"),
        )
    }
    rows = ", ".join(f"({flip}::BIGINT, {n}::BIGINT)" for flip, n in flips)
    wanted = ", ".join(f"{value} AS {name}" for name, value in names.items())
    connection.execute(
        f"CREATE TABLE analysed AS SELECT n, {wanted} FROM (VALUES {rows}) AS given(flip, n)"
    )
    write_histograms(connection, columns, tmp_path / "histograms.csv")
    table = pd.read_csv(tmp_path / "histograms.csv")
    own = table[(table["quantity"] == "fraction") & (table["ranking"] == "attention")]
    assert own[["low", "count"]].values.tolist() == [
        [0.56, 2.0],
        [0.58, 2.0],
        [0.98, 1.0],
        [math.inf, 1.0],
    ]


def test_too_little_memory_and_a_damaged_part_are_named(tmp_path: Path) -> None:
    _, _, parts, swept = both(tmp_path, CONFIG)
    with pytest.raises(ValueError, match="memory: given 1 MiB, needed at least 256 MiB"):
        aggregate_parts(parts, swept, tmp_path / "out", memory=1 << 20)
    parts[2]["multi"].write_bytes(b"PAR1 no more")
    for limit in (0, INSTANCES):
        with pytest.raises(RunError, match=r"multi-2\.parquet"):
            aggregate_parts(parts, swept, tmp_path / "out", memory=MEMORY, bootstrapped=limit)
        assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize("damage", ["gone", "cut", "pages"])
def test_a_damaged_first_part_is_named(tmp_path: Path, damage: str) -> None:
    """Which says whether smallest sets are known."""
    _, _, parts, swept = both(tmp_path, CONFIG)
    first = parts[0]["multi"]
    content = first.read_bytes()
    if damage == "gone":
        first.unlink()
    else:  # behind the magic bytes are the pages
        first.write_bytes(content[:-1] if damage == "cut" else content[:4] + content[400:])
    for limit in (0, INSTANCES):
        with pytest.raises(RunError, match=f"^{first} is missing or damaged: "):
            aggregate_parts(parts, swept, tmp_path / "out", memory=MEMORY, bootstrapped=limit)


def test_records_are_read_once_for_an_aggregate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts and their number are of one reading, whatever others write meanwhile."""
    out = tmp_path / "sweep"
    sweep_of(Drawn(), CONFIG, out)
    read: list[str] = []
    real = records.read_shard
    monkeypatch.setattr(
        records, "read_shard", lambda out, shard: [read.append(shard), real(out, shard)][1]
    )
    found = aggregate_sweep(out, memory=MEMORY)
    assert found.counts.instances == INSTANCES
    assert read == [f"shard-{number:06d}" for number in range(9)]


def test_a_sweep_s_folder_is_aggregated_from_its_records(tmp_path: Path) -> None:
    run, *_ = both(tmp_path, CONFIG)
    out = tmp_path / "sweep"
    sweep_of(Drawn(), CONFIG, out)
    found = aggregate_sweep(out, memory=MEMORY)
    assert found.folder == out / "aggregate"
    assert (found.folder / "result.json").read_bytes() == (run.folder / "result.json").read_bytes()
    part = out / "parts" / "multi" / "shard-000003.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"given \d+ bytes, needed the \d+ bytes that were written"):
        aggregate_sweep(out, memory=MEMORY)
    (out / "shards" / "shard-000003.json").unlink()
    with pytest.raises(RunError, match="1 of 9 shards are not done, needed a finished one"):
        aggregate_sweep(out, memory=MEMORY)


# --- statistics, worked out by hand ---------------------------------------------------------------


def estimates(columns: dict[str, list[Any]], memory: int = 1 << 20) -> Estimates:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("SET threads=1")
    frame = pd.DataFrame(columns)
    connection.execute("CREATE TABLE analysed AS SELECT * FROM frame")
    assert len(frame)
    return Estimates(connection, confidence=0.95, memory=memory)


def test_the_interval_of_a_median_lies_between_order_statistics() -> None:
    """Of 1 to 100: places 100 / 2 ± 1.96 √25 = 40.2 and 59.8, rounded up the 41st and the 60th."""
    found = estimates({"x": [float(value) for value in range(100, 0, -1)]}).spread(["x"])
    assert found.median == Estimate(50.5, 41.0, 60.0)
    assert found.q1.value == 25.75  # 1 + 0.25 · 99
    assert found.mean.value == 50.5
    # The variance of 1 to n is (n² − 1) / 12.
    assert found.mean.high == pytest.approx(50.5 + 1.959964 * math.sqrt(9999 / 12 / 100), rel=1e-6)


def test_infinite_values_are_beyond_all_others() -> None:
    found = estimates({"x": [1.0, 2.0, math.inf, math.inf]}).spread(["x"])
    assert (found.q1.value, found.median.value, found.q3.value) == (1.75, math.inf, math.inf)
    assert found.mean.value == math.inf


@pytest.mark.parametrize("memory", [64, 640, 1 << 20])
def test_quantiles_are_exact_however_few_values_fit_into_memory(memory: int) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(500) ** 9, np.full(700, 1 / 3), rng.normal(0, 1e6, 321)])
    found = estimates({"x": rng.permutation(x).tolist()}, memory).spread(["x"])
    expected = np.percentile(x, [25, 50, 75])
    assert [found.q1.value, found.median.value, found.q3.value] == expected.tolist()


def test_shares_have_wilson_s_interval() -> None:
    found = estimates({"x": [1.0] * 3 + [0.0] * 7}).share("x > 0.5")
    assert found.value == 0.3
    assert (found.low, found.high) == pytest.approx((0.1078, 0.6032), abs=1e-4)


def test_orders_of_an_instance_count_as_one() -> None:
    """Two columns that are equal say no more than one, though there are twice the values."""
    x = [float(value) for value in range(1, 101)]
    one, two = estimates({"x": x}), estimates({"x": x, "y": x})
    assert two.spread(["x", "y"]).median.low == one.spread(["x"]).median.low
    assert two.spread(["x", "y"]).mean.high == pytest.approx(one.spread(["x"]).mean.high)


def test_ratio_has_the_delta_method_s_interval() -> None:
    """Σ above / Σ below is 2; above − 2 below is ±1, so that its variance is 4 / 6²."""
    found = estimates({"a": [3.0, 1.0, 5.0, 3.0], "b": [1.0, 1.0, 2.0, 2.0]}).ratio("a", "b")
    assert found.value == 2.0
    assert found.high == pytest.approx(2 + 1.959964 * 2 / 6, rel=1e-6)


def test_the_record_says_what_the_folder_is(large: tuple[Result, Result]) -> None:
    run, found = large
    assert json.loads((found.folder / "run.json").read_text())["kind"] == "serrano_smith_large"
    assert found.head == run.head
    with pytest.raises(RunError, match="kind 'serrano_smith_large'"):
        load(found.folder)
