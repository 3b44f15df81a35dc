"""The tiny classifier and the texts that other libraries were given, for the fixtures of tests.

As a program it writes what `benchmarks/peers.sh` takes: `python peer_model.py FOLDER`, with
`python_tests` as the path of modules.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from huggingface.tiny import bert_tokenizer, tiny_model

SEED = 3
# Words of one, two and three pieces; marked are the words that a person would mark.
TEXTS = [
    ("the good film", [0, 1, 0]),
    ("a very dull film", [0, 1, 1, 0]),
    ("the films", [0, 0]),
    ("unbelievably good", [1, 1]),
    ("bad", [1]),
    ("a dull bad film the very dull film a good good film", [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0]),
    ("very very good the bads a films unbelievably dull", [1, 1, 1, 0, 0, 0, 0, 1, 1]),
    ("good film a bad film the dull the very good", [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]),
]


def same_weights(model: Any) -> Any:
    """Fill a model's weights by their names and a seed, the same in every release of transformers.

    Biases and the gains of layer normalisation stay as they begin.
    """
    numbers = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.ndim > 1:
                wide = 0.8 if "embeddings" in name or "wte" in name else 0.35
                weight.copy_(torch.randn(weight.shape, generator=numbers) * wide)
    return model.eval()


def classifier() -> tuple[Any, Any]:
    """Make the tiny classifier that ferret was given, and its tokenizer."""
    tokenizer = bert_tokenizer()
    return same_weights(tiny_model("bert", tokenizer)), tokenizer


def generator(tokenizer: Any) -> Any:
    """Make the tiny model that goes on with a text, which inseq was given."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=48, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return same_weights(GPT2LMHeadModel(config))


def lines(tokenizer: Any) -> list[dict[str, Any]]:
    """List the texts, each with scores of its pieces, no two alike, and the marked pieces."""
    numbers = torch.Generator().manual_seed(SEED)
    found = []
    for text, marked in TEXTS:
        words = tokenizer(text.split(), is_split_into_words=True, add_special_tokens=False)
        of_pieces = [marked[word] for word in words.word_ids()]
        scores = torch.randn(len(of_pieces), generator=numbers).tolist()
        found.append(
            {
                "text": text,
                "generated": f"{text} good",
                "scores": [round(score, 4) for score in scores],
                "rationale": of_pieces,
            }
        )
    return found


def main(folder: Path) -> None:
    """Write the models, the tokenizer and the texts into a folder."""
    model, tokenizer = classifier()
    for name, one in (("classifier", model), ("generator", generator(tokenizer))):
        one.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines(tokenizer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
