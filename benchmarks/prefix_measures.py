"""Comprehensiveness and sufficiency of an attention layer over every prefix, beside Quantus.

Quantus' PixelFlipping gives the curve of the label's probability an instance at a time, one forward
pass a prefix; it is called twice, for the most and for the least important items first. Both get
the layer with its values already encoded. The numbers are compared before anything is timed. One
thread; processor time, so that what else the machine does is not counted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Disagreement, alternate, duration, machine, markdown, versions
from problems import Data, build

import fastattnerase as fae
from fastattnerase.interop import AttentionModel
from fastattnerase.measures.aopc import aopc_comprehensiveness, aopc_sufficiency

COMPARED = 5  # instances
WITHIN = 1e-5


def batch_of(data: Data) -> fae.AttentionBatch:
    """The layer."""
    return fae.AttentionBatch(
        data.values,
        data.offsets,
        scores=data.scores,
        head_weight=data.head_weight,
        head_bias=data.head_bias,
    )


def ours(batch: fae.AttentionBatch) -> np.ndarray:
    """Both measures of the ranking by attention, `[2, B]`."""
    found = []
    for direction, measure in (("erase", aopc_comprehensiveness), ("keep", aopc_sufficiency)):
        result = fae.erase_prefixes(
            batch, "attention", curves="label_prob", direction=direction, backend="cpu"
        )
        curve = result.curves["label_prob"][0]
        found.append(measure(curve, result.curve_offsets, "every").values)
    return np.stack(found)


def theirs(data: Data, instances: int) -> np.ndarray:
    """Both measures of the first instances from PixelFlipping's curves, `[2, instances]`."""
    import quantus

    metric = quantus.PixelFlipping(
        features_in_step=1, normalise=False, perturb_baseline=0.0, disable_warnings=True
    )
    batch = batch_of(data)
    found = np.empty((2, instances))
    for instance in range(instances):
        one = batch[instance]
        model = AttentionModel(one).eval()
        assert one.scores is not None
        importance = one.scores[None, None].numpy()  # [1, 1, n]
        with torch.no_grad():
            p = model(model.inputs).softmax(1)[0]
        label = int(p.argmax())
        curves = [
            metric(
                model=model,
                x_batch=model.inputs[:, None].numpy(),
                y_batch=np.array([label]),
                a_batch=sign * importance,
                channel_first=True,
                softmax=True,
                device="cpu",
            )[0]
            for sign in (1, -1)
        ]
        whole, n = float(p[label]), importance.size
        # With the n − k least important erased, the k most important are left.
        kept = [whole, *curves[1][:-1]]
        found[:, instance] = whole - sum(curves[0]) / n, whole - sum(kept) / n
    return found


def check(data: Data, instances: int) -> float:
    """Compare both; the largest difference."""
    error = float(np.abs(ours(batch_of(data))[:, :instances] - theirs(data, instances)).max())
    if not error < WITHIN:
        raise Disagreement(f"Quantus' PixelFlipping: measures differ by {error:.2g}")
    return error


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=7, help="calls timed, of which the median")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    try:
        importlib.import_module("quantus")
    except ImportError as error:  # not installed, or its OpenCV finds no libGL
        print(f"not run: quantus cannot be imported ({error}); the extra quantus installs it")
        return 0
    torch.set_num_threads(1)
    data = build("bilstm", smoke=arguments.smoke)
    compared = 2 if arguments.smoke else COMPARED
    try:
        error = check(data, compared)
    except Disagreement as disagreement:
        print(f"no numbers: {disagreement}", file=sys.stderr)
        return 1
    batch, one = batch_of(data), batch_of(data)[:1]
    times = alternate(
        {
            "theirs": lambda: theirs(data, 1),
            "ours": lambda: ours(batch),
            "alone": lambda: ours(one),
        },
        1 if arguments.smoke else arguments.repeats,
        clock=time.process_time,
    )
    # An instance as long as the others, as benchmarks/run.py has it.
    part = one.num_items / data.items
    per_instance = times["ours"] * part
    record: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "smoke": arguments.smoke,
        "instances": data.instances,
        "items": data.items,
        "items_of_the_timed_instance": one.num_items,
        "largest_difference": error,
        "compared_instances": compared,
        "seconds": times,
        "seconds_an_instance": per_instance,
        "faster_an_instance_in_a_batch": times["theirs"] / per_instance,
        "faster_an_instance_alone": times["theirs"] / times["alone"],
    }
    print(
        f"{data.instances:,} instances of {data.items / data.instances:.0f} items, width "
        f"{data.values.shape[1]}; measures of {compared} instances differ by at most {error:.1g}"
    )
    print(
        markdown(
            ["an instance, both measures over every prefix", "processor time", "faster by"],
            [
                ["Quantus PixelFlipping", duration(times["theirs"]), ""],
                *(
                    [name, duration(seconds), f"{times['theirs'] / seconds:,.0f}"]
                    for name, seconds in (
                        ("the engine, all instances in a call", per_instance),
                        ("the engine, an instance a call", times["alone"]),
                    )
                ),
            ],
        )
    )
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
