"""Ferret's measures of given scores, or of its own; runs where ferret-xai is installed.

python benchmarks/peers_ferret.py MODEL TEXTS OUT [--explain | --seconds]

MODEL: a folder of a fine-tuned classifier. TEXTS: JSON lines with a `text` each, and where there
are some `scores` and `rationale` (0 and 1), one a token without special ones, and `target`, the
class, without which it is the model's decision. OUT: JSON: for each text its class, the class's
probability, and its explanations, each with tokens, scores, comprehensiveness, sufficiency, AUPRC
and token F1, and what was left of the text where tokens were deleted. `--explain`: gradients and
integrated gradients of ferret beside the scores given; `fastattnerase.interop.scores_of_tokens`
takes any of them. `--seconds`: instead of all that, processor time of both measures of the scores
given, all texts, on one thread. `benchmarks/peers.sh` makes the environment.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Those of ferret's names.
MEASURES = {
    "aopc_compr": "comprehensiveness",
    "aopc_suff": "sufficiency",
    "auprc_plau": "auprc",
    "token_f1_plau": "token_f1",
}

ERASING = ("aopc_compr", "aopc_suff")


def recorded(evaluator: Any) -> list[list[str]]:
    """Let a measure that erases note the texts that it classifies; the list is filled by each."""
    found: list[list[str]] = []
    forward = evaluator.helper._forward

    def noting(text: Any, **options: Any) -> Any:
        if not isinstance(text, str):  # which is the whole one
            found.append([str(one) for one in text])
        return forward(text, **options)

    evaluator.helper._forward = noting
    return found


def seconds(bench: Any, given: list[tuple[Any, int]]) -> dict[str, float]:
    """Time the measures that erase: processor seconds for all explanations, by measure."""
    times = {}
    for evaluator in bench.evaluators:
        if evaluator.SHORT_NAME in ERASING:
            evaluator.compute_evaluation(*given[0])  # the first call is slower
            begin = time.process_time()
            for explanation, target in given:
                evaluator.compute_evaluation(explanation, target)
            times[MEASURES[evaluator.SHORT_NAME]] = time.process_time() - begin
    return times


def explanations(bench: Any, line: dict[str, Any], target: int, explain: bool) -> list[Any]:
    """List the explanations of a text: of the scores given and, where asked for, of ferret."""
    import numpy as np
    from ferret.explainers.explanation import Explanation

    found = []
    if "scores" in line:
        tokens = bench.helper.get_tokens(line["text"])
        scores = np.array([0.0, *line["scores"], 0.0])
        if len(tokens) != len(scores):
            raise SystemExit(
                f"scores: given {len(line['scores'])} for {line['text']!r:.60}, needed "
                f"{len(tokens) - 2}, one a token without special ones"
            )
        found.append(Explanation(line["text"], tokens, scores, "given", target))
    if explain:
        found += bench.explain(line["text"], target, show_progress=False)
    return found


def measured(
    bench: Any, left: dict[str, list[list[str]]], explanation: Any, target: int, rationale: Any
) -> dict[str, Any]:
    """Measure an explanation; what is not a number is left out."""
    for texts in left.values():
        texts.clear()
    found = bench.evaluate_explanation(
        explanation, target, human_rationale=rationale, show_progress=False
    )
    values = {
        MEASURES[one.name]: float(one.score)
        for one in found.evaluation_scores
        if one.name in MEASURES and math.isfinite(one.score)
    }
    return {
        "explainer": explanation.explainer,
        "tokens": list(explanation.tokens),
        "scores": [float(score) for score in explanation.scores],
        **values,
        "left": {MEASURES[name]: [one for texts in left[name] for one in texts] for name in left},
    }


def main() -> None:
    """Explain and measure every text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="the folder of a fine-tuned classifier")
    parser.add_argument("texts", type=Path, help="JSON lines: text, scores, rationale, target")
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("--explain", action="store_true", help="ferret's own explainers, too")
    parser.add_argument("--seconds", action="store_true", help="time the measures that erase")
    options = parser.parse_args()
    if not (options.model / "config.json").is_file():
        parser.error(f"model: given {options.model}, without config.json, needed a model's folder")
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line) for line in lines if line.strip()]

    import torch
    from ferret import Benchmark, GradientExplainer, IntegratedGradientExplainer
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSequenceClassification.from_pretrained(options.model).eval()
    own = [
        make(model, tokenizer, multiply_by_inputs=times)
        for make in (GradientExplainer, IntegratedGradientExplainer)
        for times in (False, True)
    ]
    bench = Benchmark(model, tokenizer, explainers=own)
    versions = {name: version(name) for name in ("ferret-xai", "transformers", "torch", "numpy")}
    record: dict[str, Any] = {"versions": versions}
    asked = []
    for line in texts:
        _, logits = bench.helper._forward(line["text"], output_hidden_states=False)
        probabilities = logits.softmax(-1)[0]  # [C]
        target = int(line.get("target", probabilities.argmax()))
        asked.append((line, target, float(probabilities[target])))
    if options.seconds:
        torch.set_num_threads(1)
        given = [(*explanations(bench, line, target, False), target) for line, target, _ in asked]
        record["seconds"] = seconds(bench, given)
    else:
        left = {
            evaluator.SHORT_NAME: recorded(evaluator)
            for evaluator in bench.evaluators
            if evaluator.SHORT_NAME in ERASING
        }
        record["texts"] = [
            {
                "text": line["text"],
                "target": target,
                "probability": probability,
                **({"rationale": line["rationale"]} if "rationale" in line else {}),
                "explanations": [
                    measured(bench, left, one, target, line.get("rationale"))
                    for one in explanations(bench, line, target, options.explain)
                ],
            }
            for line, target, probability in asked
        ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
