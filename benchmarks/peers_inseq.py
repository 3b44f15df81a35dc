"""Scores of inseq for the texts of a file, as inseq saves them; runs where inseq is installed.

python benchmarks/peers_inseq.py MODEL TEXTS OUT [--method saliency] [--skip-special-tokens]

MODEL: a folder of a model that goes on with a text or translates it, as inseq takes no classifier.
TEXTS: JSON lines with a `text` each and, where the model shall not choose the next token itself,
what is `generated`: the translation, or the text with what follows it. OUT:
`FeatureAttributionOutput.save`, aggregated over features, which `fastattnerase.interop.read_inseq`
reads. A tokenizer that closes a text, as BERT's, wants `--skip-special-tokens` with a model that
goes on with it. `benchmarks/peers.sh` makes the environment.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    """Attribute one generated token of every text and save what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="the folder of a model that generates")
    parser.add_argument("texts", type=Path, help="JSON lines with a text each")
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("--method", default="saliency", help="inseq's name of the method")
    parser.add_argument(
        "--skip-special-tokens", action="store_true", help="texts without the tokenizer's own"
    )
    options = parser.parse_args()
    if not (options.model / "config.json").is_file():
        parser.error(f"model: given {options.model}, without config.json, needed a model's folder")
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line) for line in lines if line.strip()]

    import inseq

    model = inseq.load_model(str(options.model), options.method, device="cpu")
    # One by one: padding would move the positions of models without an encoder.
    found = [
        model.attribute(
            line["text"],
            line.get("generated"),
            show_progress=False,
            skip_special_tokens=options.skip_special_tokens,
            generation_args={}
            if "generated" in line
            else {"max_new_tokens": 1, "min_new_tokens": 1, "do_sample": False},
        )
        for line in texts
    ]
    together = inseq.merge_attributions(found).aggregate()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    together.save(options.out, overwrite=True)


if __name__ == "__main__":
    main()
