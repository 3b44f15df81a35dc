"""A transformer's last layer: every prefix of four rankings beside a forward pass a prefix.

    python benchmarks/transformer.py                # BERT as wide as MiniLM, random weights
    python benchmarks/transformer.py --smoke        # seconds; what CI runs
    python benchmarks/transformer.py --transformer DIR --json benchmarks/results/transformer.json
    python benchmarks/transformer.py --device cuda  # an NVIDIA GPU

Texts have 128 pieces with their special tokens. A forward pass a prefix is what a user would write:
the whole model, its last layer's attention at the classifying position masked and renormalised, 32
prefixes a batch. It is timed on every so many prefixes of one text, and the time is scaled by their
number; its logits are compared with the curves' before anything is timed. The head's share is the
time of calling it on as many pooled vectors, in pieces as large. Memory is how far resident memory
rises above its level before the call. Times are of the processor, on one thread; on a GPU they are
of the clock, memory is torch's there, and how much faster it is is shown, not judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.data import Dataset, TokenisedText, encode
from fastattnerase.huggingface import TransformerClassifier, TransformerConfig, load_transformer
from fastattnerase.kept_items import sweep_beside_kept

PIECES, SMOKE_PIECES = 128, 16
TEXTS, SMOKE_TEXTS = 16, 2
RANKINGS = ("random", "attention", "gradient", "product")
BATCH = 32  # prefixes of a forward pass
SAMPLE = 32  # prefixes of one text that are run through the whole model
BUDGET = 1 << 26  # bytes, of pooled vectors
MARGIN = 1 << 26  # bytes: what a call may take beside the budget
FASTER, POOLING, WITHIN = 100.0, 0.25, 1e-5


def random_model(smoke: bool) -> TransformerClassifier:
    """Make a BERT classifier of MiniLM's sizes with random weights, and a tokenizer of letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    made = Tokenizer(models.WordPiece(dict(zip(names, range(99), strict=False)), unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    sizes = (32, 64, 4, 2) if smoke else (384, 1_536, 12, 6)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=sizes[0],
        intermediate_size=sizes[1],
        num_attention_heads=sizes[2],
        num_hidden_layers=sizes[3],
    )
    tokenizer = BertTokenizerFast(tokenizer_object=made, model_max_length=512)
    return TransformerClassifier(BertForSequenceClassification(config).eval(), tokenizer)


def texts_of(model: TransformerClassifier, texts: int, pieces: int) -> Dataset:
    """Draw texts of so many pieces, special tokens included: words of one piece."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    drawn = torch.randint(26, (texts, pieces - 2), generator=torch.manual_seed(1)).tolist()
    rows = [[letters[i] for i in own] for own in drawn]
    given = [TokenisedText(n, -1, [row], [" ".join(row)]) for n, row in enumerate(rows)]
    return model.fit(encode(given, model.words))


@contextmanager
def masked(model: TransformerClassifier, gone: list[Tensor]) -> Iterator[None]:
    """Mask the last layer's attention at the first position by `gone[0]`, `[M, L]`."""
    found: dict[str, Tensor] = {}
    layer: Any = model.family.layer
    heads = model.family.heads

    def keep(name: str) -> Any:
        return lambda module, args, output: found.__setitem__(name, output)

    def change(module: Any, args: Any, output: Any) -> Any:
        q, k, v = (found[name].unflatten(-1, (heads, -1)) for name in "qkv")  # [M, L, H, d]
        scores = torch.einsum("mhd,mlhd->mhl", q[:, 0], k) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(gone[0][:, None], -torch.inf).softmax(-1)
        first = output[0].clone()
        first[:, 0] = torch.einsum("mhl,mlhd->mhd", weights, v).flatten(1)
        return (first, *output[1:])

    hooks = [
        part.register_forward_hook(keep(name))
        for name, part in zip("qkv", model.family.projections, strict=True)
    ]
    hooks.append(layer.attention.self.register_forward_hook(change))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Forward:
    """The whole model, run once for each of some prefixes of one text."""

    def __init__(self, model: TransformerClassifier, dataset: Dataset, order: Tensor) -> None:
        pieces = [p for i in dataset[0].token_ids.tolist() for p in model.words.pieces(i)]
        assert len(pieces) == len(order)  # words of one piece
        self.model, self.order = model, order
        ids = [[*model.words.before, *pieces, *model.words.after]]
        self.ids = torch.tensor(ids, device=order.device)
        n = len(order)
        self.prefixes = torch.linspace(0, n, min(SAMPLE, n + 1)).long().unique()

    def __call__(self) -> Tensor:
        """Give the logits of the prefixes: `[K, C]`."""
        found = []
        begin = len(self.model.words.before)
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(len(self.order), device=place.device)
        for k in self.prefixes.to(place.device).split(BATCH):
            gone = torch.zeros_like(self.ids, dtype=torch.bool).repeat(len(k), 1)  # [M, L]
            gone[:, begin : begin + len(place)] = place < k[:, None]
            with masked(self.model, [gone]), torch.no_grad():
                found.append(self.model.model(input_ids=self.ids.expand(len(k), -1)).logits)
        return torch.cat(found)


def gpu_clock() -> float:
    """Seconds of the clock, once the GPU has done all that was asked of it."""
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_gpu_bytes(function: Callable[[], object]) -> int:
    """How far torch's memory on the GPU rises above its level before the call."""
    function()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return torch.cuda.max_memory_allocated() - before


def row_of(model: TransformerClassifier, dataset: Dataset, repeats: int) -> dict[str, Any]:
    """Compare, then time curves of all texts, the head alone, and forward passes."""
    batch = AttentionBatch.cat(list(model.attention_batches(dataset, batch_tokens=1 << 30)))
    on_gpu = batch.device.type == "cuda"
    n = batch.lengths - 1  # [B]
    order = torch.randperm(int(n[0]), generator=torch.manual_seed(2)).to(batch.device)
    forward = Forward(model, dataset, order)
    own = sweep_beside_kept(batch[:1], [order], curves=("logits",)).prefixes.curves["logits"][0]
    expected = forward()
    worst = float((own[forward.prefixes] - expected).abs().max())
    if not worst < WITHIN * max(1.0, float(expected.abs().max())):
        raise Disagreement(f"logits of prefixes are {worst:.2g} off")

    points = len(RANKINGS) * int((n + 1).sum())
    head = torch.randn(1 << 12, *batch.values.shape[1:], generator=torch.manual_seed(3))
    head = head.to(batch.device)
    rows = torch.zeros(len(head), dtype=torch.int64, device=batch.device)

    def curves() -> None:
        sweep_beside_kept(batch, RANKINGS, curves=("label_prob",), max_bytes=BUDGET)

    def heads() -> None:
        with torch.no_grad():
            for begin in range(0, points, len(head)):
                count = min(len(head), points - begin)
                batch.call_head(head[:count], rows[:count])

    functions = {"curves": curves, "heads": heads, "forward": forward}
    times = alternate(functions, repeats, clock=gpu_clock if on_gpu else time.process_time)
    a_prefix = times["forward"] / len(forward.prefixes)
    peak = peak_gpu_bytes(curves) if on_gpu else peak_extra_bytes(curves)
    return {
        "texts": len(batch),
        "pieces": int(n[0]) + model.words.special,
        "prefixes": points,
        "largest_difference": worst,
        "curves_seconds": times["curves"],
        "head_seconds": times["heads"],
        "forward_a_prefix_seconds": a_prefix,
        "faster": a_prefix * points / times["curves"],
        "pooling_and_sorting": max(0.0, 1 - times["heads"] / times["curves"]),
        "max_bytes": BUDGET,
        "peak_bytes": peak,
        "within": peak is None or peak <= BUDGET + MARGIN,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--transformer", type=Path, help="a fine-tuned BERT classifier's folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=3, help="calls timed, of which the median")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    smoke = arguments.smoke
    if arguments.transformer is None:
        model = random_model(smoke)
    else:
        model = load_transformer(arguments.transformer, TransformerConfig()).model
    on_gpu = torch.device(arguments.device).type == "cuda"
    model.to(arguments.device)
    sizes = (SMOKE_TEXTS, SMOKE_PIECES) if smoke else (TEXTS, PIECES)
    try:
        row = row_of(model, texts_of(model, *sizes), 1 if smoke else arguments.repeats)
    except Disagreement as error:
        print(f"no numbers: {error}", file=sys.stderr)
        return 1
    print(
        f"{row['texts']} texts of {row['pieces']} pieces, {row['prefixes']:,} prefixes of "
        f"{len(RANKINGS)} rankings, {'GPU' if on_gpu else 'one thread'}"
    )
    forward = row["forward_a_prefix_seconds"] * row["prefixes"]
    table = [
        ["curves over every prefix", duration(row["curves_seconds"]), ""],
        ["of which pooling and sorting", "", f"{row['pooling_and_sorting']:.0%}"],
        ["a forward pass a prefix", duration(forward), f"{row['faster']:.0f} times"],
        ["peak memory", quantity(row["peak_bytes"], "B"), ""],
    ]
    print(markdown(["", "all", ""], table))
    if arguments.json is not None:
        record = {
            "machine": machine(),
            "versions": versions(),
            "smoke": smoke,
            "device": arguments.device,
            "trained": arguments.transformer is not None,
            "curves": row,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    fast = row["faster"] >= FASTER and row["pooling_and_sorting"] <= POOLING
    fast |= on_gpu
    return 0 if smoke or (fast and row["within"]) else 1


if __name__ == "__main__":
    sys.exit(main())
