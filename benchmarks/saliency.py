"""Saliency methods: omission beside a forward pass a word, peak memory, completeness.

    python benchmarks/saliency.py                       # 1,725 made-up sentences as long as SST's
    python benchmarks/saliency.py --smoke               # seconds; what CI runs
    python benchmarks/saliency.py --prepared DIR --model DIR --json benchmarks/results/saliency.json

The model is a BiLSTM with additive attention (kind `sequence`), untrained unless `--model` gives a
folder of `train`; `--prepared` is a folder of `write_preset`, whose test split is scored. A forward
pass a word is what a user would write: each word deleted in turn, the text classified by itself.
It is timed on every so many sentences and the time is scaled by their words; its scores are
compared with omission's before anything is timed. Memory is how far resident memory rises above
its level before the call, which of long texts makes its first passes alone: all are alike. Times
are of the processor, on one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import (
    Disagreement,
    alternate,
    duration,
    machine,
    markdown,
    peak_extra_bytes,
    quantity,
    versions,
)

from fastattnerase import saliency
from fastattnerase.data import Dataset, TokenisedText, Vocabulary, collate, encode
from fastattnerase.data.presets import read_prepared
from fastattnerase.models import AttentionClassifier, ModelConfig, build_model, load_model
from fastattnerase.models.base import evaluating

SENTENCES, SMOKE_SENTENCES = 1_725, 20
MEAN, LONGEST = 19.2, 56  # words of SST's test sentences
WORDS = 5_000  # of the vocabulary
SAMPLE = 100  # sentences that are also classified a word at a time
LENGTHS, SMOKE_LENGTHS = (20, 200, 2_800), (5, 20)
BUDGETS = (1 << 27,)  # bytes
STEPS = (10, 1_000)
PASSES = 3  # of a text whose memory is measured; all are alike, and there may be thousands
MARGIN = 1 << 26  # bytes: what a process may take beside the budget
METHODS = ("gradient_norm", "gradient_x_input", "integrated_gradients", "occlusion", "omission")
FASTER, WITHIN, COMPLETE = 6.0, 1e-5, 1e-3


class Enough(Exception):
    """As many passes have been made as are looked at."""


def made_up(lengths: list[int]) -> Dataset:
    """Texts of random words."""
    draw = np.random.default_rng(0)
    names = [f"w{word}" for word in range(WORDS)]
    texts = []
    for number, n in enumerate(lengths):
        words = [names[word] for word in draw.integers(0, WORDS, n)]
        texts.append(TokenisedText(number, 0, [words], [""]))
    return encode(texts, Vocabulary(names))


def untrained(smoke: bool) -> AttentionClassifier:
    """The BiLSTM of Jain and Wallace, or a small one."""
    names = [f"w{word}" for word in range(WORDS)]
    config = ModelConfig(
        kind="sequence",
        encoder="bilstm",
        embedding_size=50 if smoke else 300,
        hidden_size=16 if smoke else 128,
    )
    return build_model(config, Vocabulary(names), 2)


def a_word_at_a_time(model: AttentionClassifier, dataset: Dataset) -> torch.Tensor:
    """What a user would write: `z_c(x) − z_c(x without word i)`, one forward pass each.

    Of a model with one logit z, whose logits are (0, z), class 0 has the output −z.
    """
    scores = []
    one_logit = model.config.head == "sigmoid"

    def output(logits: torch.Tensor, target: int) -> float:
        return float(logits[target] - (logits[1 - target] if one_logit else 0))

    with evaluating(model):
        for document in dataset:
            whole = model(collate([document])).logits[0]
            target = int(whole.argmax())
            for place in range(len(document)):
                tokens = document.tokens[:place] + document.tokens[place + 1 :]
                shorter = replace(
                    document,
                    token_ids=np.delete(document.token_ids, place),
                    tokens=tokens,
                    sentence_lengths=np.array([len(tokens)] if tokens else [], dtype=np.int64),
                )
                without = model(collate([shorter])).logits[0]
                scores.append(output(whole, target) - output(without, target))
    return torch.tensor(scores, dtype=torch.float64)


def omission_row(model: AttentionClassifier, dataset: Dataset, repeats: int) -> dict[str, Any]:
    """Time omission of all texts, and a forward pass a word of some."""
    some = Dataset(dataset.documents[:: max(1, len(dataset) // SAMPLE)])
    given = a_word_at_a_time(model, some)
    worst = float((saliency.attribute(model, some, "omission").scores - given).abs().max())
    if worst > WITHIN:
        raise Disagreement(f"omission differs by {worst:.3g} from a forward pass a word")
    times = alternate(
        {
            "omission": lambda: saliency.attribute(model, dataset, "omission"),
            "a word at a time": lambda: a_word_at_a_time(model, some),
        },
        repeats,
        clock=time.process_time,
    )
    words = sum(len(document) for document in dataset)
    scaled = times["a word at a time"] * words / len(given)
    return {
        "sentences": len(dataset),
        "words": words,
        "compared_words": len(given),
        "largest_difference": worst,
        "omission_seconds": times["omission"],
        "forward_a_word_seconds": scaled,
        "faster": scaled / times["omission"],
    }


def memory_row(
    model: AttentionClassifier, method: str, n: int, max_bytes: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Peak memory of one method on one text, which is not followed beyond `PASSES` passes."""
    dataset = made_up([n])

    def call() -> None:
        passes = itertools.count(1)

        def count(*_: Any) -> None:
            if next(passes) > PASSES:
                raise Enough

        hook = model.embedding_dropout.register_forward_hook(count)
        try:
            saliency.attribute(model, dataset, method, max_bytes=max_bytes, **options)
        except Enough:
            pass
        finally:
            hook.remove()

    peak = peak_extra_bytes(call)
    print(f"{method} {n} {max_bytes} {options}: {peak}", file=sys.stderr)
    return {
        "method": method,
        "words": n,
        "max_bytes": max_bytes,
        "options": options,
        "peak_bytes": peak,
        "within": peak is None or peak <= max_bytes + MARGIN,
    }


def completeness_row(model: AttentionClassifier, dataset: Dataset) -> dict[str, Any]:
    """How many texts' integrated gradients add up, with 50 nodes of Gauss and Legendre."""
    found = saliency.attribute(model, dataset, "integrated_gradients")
    assert found.delta is not None
    rise = (found.details["output"] - found.details["baseline_output"]).abs()  # [B]
    error = found.delta.abs() / rise  # [B]
    return {
        "sentences": len(dataset),
        "complete": float((error <= COMPLETE).double().mean()),
        "median_error": float(error.median()),
        "largest_error": float(error.max()),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--model", type=Path, help="a trained model's folder")
    parser.add_argument("--prepared", type=Path, help="its data, as write_preset wrote them")
    parser.add_argument("--repeats", type=int, default=3, help="calls timed, of which the median")
    parser.add_argument("--only", choices=["omission", "memory", "completeness"], help="one part")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    smoke, only = arguments.smoke, arguments.only
    model = untrained(smoke) if arguments.model is None else load_model(arguments.model).model
    if arguments.prepared is None:
        count = SMOKE_SENTENCES if smoke else SENTENCES
        drawn = np.random.default_rng(1).poisson(MEAN, count).clip(1, LONGEST)
        dataset = made_up(drawn.tolist())
    else:
        dataset = read_prepared(arguments.prepared)[0].test
    record: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "smoke": smoke,
        "trained": arguments.model is not None,
        "data": "made up" if arguments.prepared is None else "test split",
    }
    good = True
    if only in (None, "omission"):
        try:
            row = omission_row(model, dataset, 1 if smoke else arguments.repeats)
        except Disagreement as error:
            print(f"no numbers: {error}", file=sys.stderr)
            return 1
        record["omission"] = row
        good &= smoke or row["faster"] >= FASTER
        print(f"{row['sentences']:,} sentences, {row['words']:,} words, one thread")
        columns = ["", "all", "a word", "omission is faster by"]
        rows = [
            ["omission", *_times(row["omission_seconds"], row["words"]), ""],
            [
                "a forward pass a word",
                *_times(row["forward_a_word_seconds"], row["words"]),
                f"{row['faster']:.1f}",
            ],
        ]
        print(markdown(columns, rows))
    if only in (None, "memory"):
        lengths = SMOKE_LENGTHS if smoke else LENGTHS
        record["memory"] = memory = [
            memory_row(model, method, n, budget, options)
            for budget in BUDGETS[: 1 if smoke else None]
            for n in lengths
            for method in METHODS
            for options in (
                [{"steps": steps} for steps in STEPS[: 1 if smoke else None]]
                if method == "integrated_gradients"
                else [{}]
            )
        ]
        good &= all(row["within"] for row in memory)
        print(f"\npeak memory beside the model, needed max_bytes + {quantity(MARGIN, 'B')} at most")
        print(
            markdown(
                ["method", "words", "max_bytes", "peak"],
                [
                    [
                        " ".join([row["method"], *map(str, row["options"].values())]),
                        f"{row['words']:,}",
                        quantity(row["max_bytes"], "B"),
                        quantity(row["peak_bytes"], "B"),
                    ]
                    for row in memory
                ],
            )
        )
    if only in (None, "completeness"):
        record["completeness"] = row = completeness_row(model, dataset)
        print(
            f"\nintegrated gradients of {row['sentences']:,} sentences: {row['complete']:.2%} add "
            f"up to {COMPLETE:g} of |f(x) - f(b)|, median error {row['median_error']:.2g}, "
            f"largest {row['largest_error']:.2g}"
        )
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if good else 1


def _times(seconds: float, words: int) -> list[str]:
    return [duration(seconds), duration(seconds / words)]


if __name__ == "__main__":
    sys.exit(main())
