"""A fine-tuned transformer's measures and methods beside those of ferret and Captum.

    python benchmarks/peers_compare.py --transformer DIR --trees DATA/sst \\
      --json benchmarks/results/peers.json

`--trees`: a folder of the Stanford Sentiment Treebank, of whose test split sentences with a label
are taken, evenly spaced. Each method of `METHODS` scores their pieces here, and ferret, in the
environment that `peers.sh` makes, is given these scores, the decision, and the marked pieces.
Comprehensiveness and sufficiency (`preset="ferret"`) must be ferret's to 1e-4 wherever ferret
classified the pieces that were left. It writes these as a text and tokenises it again, which can
give others; those texts are counted by what changed, and ferret's number must come out of the
pieces that it read. AUPRC and token F1 must be ferret's, too. A word is marked by ferret's rule for
this treebank: the largest phrases that people judged to be stronger than every phrase inside of
them, and single words; marked is what they did not call neutral.

Both are timed on the same texts, scores and thresholds, each on one thread by the processor's
clock, one after the other in turns, each in its own process, as their environments differ.

Captum's layer integrated gradients of the embeddings and its occlusion of vectors are computed on
some of the sentences.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Disagreement, duration, machine, markdown, versions
from torch import Tensor

from fastattnerase import saliency
from fastattnerase.data import Dataset, TokenisedText, encode
from fastattnerase.data.files import open_text
from fastattnerase.huggingface import TransformerClassifier, TransformerConfig, load_transformer
from fastattnerase.input_erasure import Direction, erase_inputs
from fastattnerase.measures.aopc import aopc_comprehensiveness, aopc_sufficiency
from fastattnerase.measures.plausibility import plausibility
from fastattnerase.measures.thresholds import PRESETS

SENTENCES, OF_CAPTUM = 100, 20
METHODS = ("gradient_x_input", "omission", "attention")
TIMED = "gradient_x_input"
STEPS = 50  # of integrated gradients
WITHIN, SAME = 1e-4, 1e-9
MEASURES: dict[str, tuple[Direction, Any]] = {
    "comprehensiveness": ("erase", aopc_comprehensiveness),
    "sufficiency": ("keep", aopc_sufficiency),
}
CHANGES = ("a piece without the one before it", "whole words written otherwise")
PEERS = Path(__file__).with_name("peers.sh")


# --- sentences and the words that people marked --------------------------------------------------


@dataclass
class Tree:
    """A phrase: its label, 0 (very negative) to 4, and its parts, or the word that it is."""

    label: int
    word: str = ""
    parts: list[Tree] = field(default_factory=list)

    def leaves(self) -> list[Tree]:
        """List the words, in order."""
        return [leaf for part in self.parts for leaf in part.leaves()] or [self]

    def within(self) -> list[Tree]:
        """List all phrases inside of this one."""
        return [one for part in self.parts for one in (part, *part.within())]


def read_tree(line: str) -> Tree:
    """Read a sentence such as `(3 (2 It) (4 works))`."""
    tokens = line.replace("(", " ( ").replace(")", " ) ").split()
    open_phrases: list[Tree] = [Tree(-1)]
    for place, token in enumerate(tokens):
        if token == "(":
            open_phrases.append(Tree(int(tokens[place + 1])))
        elif token == ")":
            done = open_phrases.pop()
            open_phrases[-1].parts.append(done)
        elif tokens[place - 1] != "(":
            open_phrases[-1].word = token
    return open_phrases[0].parts[0]


def marked_words(tree: Tree) -> list[bool]:
    """Say which words of a sentence are marked, by ferret's rule for this treebank."""
    strength = abs(tree.label - 2)
    if all(strength > abs(one.label - 2) for one in tree.within()):  # of a word there are none
        return [strength > 0] * len(tree.leaves())
    return [mark for part in tree.parts for mark in marked_words(part)]


def sentences(folder: Path, count: int) -> list[Tree]:
    """Read the test sentences that are not neutral, of which so many are taken, evenly spaced."""
    path = folder / "test.txt"
    with open_text(path if path.exists() else folder / "test.txt.xz") as file:
        trees = [read_tree(line) for line in file if line.strip()]
    trees = [tree for tree in trees if tree.label != 2]
    count = min(count, len(trees))
    return [trees[i * len(trees) // count] for i in range(count)]


@dataclass
class Texts:
    """Sentences as pieces of a model, and the marks of pieces."""

    dataset: Dataset
    texts: list[str]
    marks: list[list[bool]]

    @property
    def offsets(self) -> list[int]:
        """Where the pieces of each begin, and the end of the last."""
        return np.cumsum([0, *map(len, self.dataset)]).tolist()


def texts_of(model: TransformerClassifier, trees: list[Tree]) -> Texts:
    """Cut sentences into pieces; those of a marked word are marked."""
    words = [[leaf.word for leaf in tree.leaves()] for tree in trees]
    given = [
        TokenisedText(row, int(trees[row].label > 2), [own], [" ".join(own)])
        for row, own in enumerate(words)
    ]
    dataset = model.fit(encode(given, model.words))
    if dataset.truncated:
        raise SystemExit(f"transformer: given {dataset.truncated} sentences beyond its length")
    marks = []
    for own, tree in zip(words, trees, strict=True):
        counts = [len(model.words.pieces(index)) for index in model.words.indices(own)]
        pairs = zip(marked_words(tree), counts, strict=True)
        marks.append([mark for mark, count in pairs for _ in range(count)])
    return Texts(dataset, [" ".join(own) for own in words], marks)


# --- ferret --------------------------------------------------------------------------------------


def lines_of(texts: Texts, scores: Tensor, decisions: list[int]) -> list[dict[str, Any]]:
    """List what ferret is given of each text."""
    offsets = texts.offsets
    return [
        {
            "text": text,
            "target": decisions[row],
            "scores": scores[offsets[row] : offsets[row + 1]].tolist(),
            "rationale": [int(mark) for mark in texts.marks[row]],
        }
        for row, text in enumerate(texts.texts)
    ]


def ferret(folder: Path, model: Path, lines: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    """Run ferret on texts: what `peers_ferret.py` writes."""
    given = folder / "texts.jsonl"
    given.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    command = ["bash", str(PEERS), str(folder), "ferret", str(model.resolve()), str(given)]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *options], env=os.environ | one_thread, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"peers.sh: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads((folder / "ferret.json").read_text(encoding="utf-8"))
    return found


def kept_of(direction: Direction, order: list[int], positive: int) -> list[list[int]]:
    """List the places that are left at each of ferret's thresholds, in the order of the text."""
    counts = PRESETS["ferret"].counts([len(order)], [positive])[1].tolist()
    return [sorted(order[k:] if direction == "erase" else order[:k]) for k in counts]


def change_of(words: Any, pieces: list[int], kept: list[int], again: list[int]) -> str | None:
    """Say why a text that was written and tokenised again has other pieces; None if it has not."""
    if [pieces[place] for place in kept] == again:
        return None
    names = words.tokenizer.convert_ids_to_tokens(pieces)
    alone = any(names[i].startswith("##") and i - 1 not in kept for i in kept)
    return CHANGES[0] if alone else CHANGES[1]


def drop_of(model: TransformerClassifier, rows: list[list[int]], whole: float, c: int) -> float:
    """Average `p_c(x) − p_c` over texts of these pieces."""
    dataset = Dataset([_of_pieces(model, row, ids) for row, ids in enumerate(rows)])
    nothing = torch.zeros(sum(map(len, rows)))
    found = erase_inputs(model, dataset, {"none": nothing}, at=(), target=c)
    return whole - float(found.probabilities[:, c].mean())


def _of_pieces(model: TransformerClassifier, row: int, ids: list[int]) -> Any:
    tokens = model.words.tokenizer.convert_ids_to_tokens(ids)
    words = [tokens] if tokens else []
    made = TokenisedText(row, -1, words, [" ".join(tokens)] if tokens else [])
    document = encode([made], model.words)[0]
    document.token_ids[:] = ids
    return document


def compare(
    model: TransformerClassifier, texts: Texts, scores: Tensor, theirs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Compare a method's measures with ferret's of the same scores.

    Args:
        model: of unit pieces.
        texts: `B` texts.
        scores: `[T]`, of their pieces.
        theirs: what ferret said of each text.

    Returns:
        For each measure how many texts were compared, how many ferret read otherwise and why, and
        the largest differences.

    Raises:
        Disagreement: a number that is another, naming measure and text.
    """
    row: dict[str, Any] = {}
    offsets = texts.offsets
    decisions: list[int] = []
    for name, (direction, measure) in MEASURES.items():
        found = erase_inputs(
            model, texts.dataset, {"given": scores}, at="ferret", direction=direction
        )
        decisions = found.decision.tolist()
        curve = found.curves["label_prob"].numpy()
        positive = found.positive.numpy()
        ours = measure(curve, found.curve_offsets.numpy(), "ferret", positive=positive).values[0]
        changed = dict.fromkeys(CHANGES, 0)
        worst = again_worst = 0.0
        compared = without = 0
        for b, (document, their) in enumerate(zip(texts.dataset, theirs, strict=True)):
            whole = float(found.probabilities[b, decisions[b]])
            if decisions[b] != their["target"] or abs(whole - their["probability"]) > WITHIN:
                raise Disagreement(f"probability of text {b}: {whole} and {their['probability']}")
            explained = their["explanations"][0]
            order = scores[offsets[b] : offsets[b + 1]].argsort(descending=True, stable=True)
            kept = kept_of(direction, order.tolist(), int(positive[0, b]))
            left = explained["left"][name]
            if len(kept) != len(left):
                raise Disagreement(f"{name} of text {b}: {len(kept)} and {len(left)} thresholds")
            if not kept:
                without += 1
                continue
            pieces = document.token_ids.tolist()
            again = model.words.tokenizer(left, add_special_tokens=False)["input_ids"]
            whys = [
                change_of(model.words, pieces, own, ids)
                for own, ids in zip(kept, again, strict=True)
            ]
            if any(whys):
                changed[next(why for why in CHANGES if why in whys)] += 1
                off = abs(drop_of(model, again, whole, decisions[b]) - explained[name])
                again_worst = max(again_worst, off)
            else:
                compared += 1
                off = abs(float(ours[b]) - explained[name])
                worst = max(worst, off)
            if not off <= WITHIN:
                raise Disagreement(f"{name} of text {b}: {off:.2g} off, {whys}")
        row[name] = {
            "equal": compared,
            "largest_difference": worst,
            "read_otherwise": changed,
            "largest_difference_of_what_was_read": again_worst,
            "no_positive_score": without,
        }
    row["plausibility"] = compare_marks(texts, scores, theirs)
    return row


def compare_marks(texts: Texts, scores: Tensor, theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare AUPRC and token F1 with ferret's, of texts of which some pieces are marked."""
    spans = [[(i, i + 1) for i, mark in enumerate(own) if mark] for own in texts.marks]
    ours = plausibility(scores.numpy(), spans, np.array(texts.offsets), preset="ferret")
    worst, compared = 0.0, 0
    for b, their in enumerate(theirs):
        if not 0 < np.mean(texts.marks[b]) < 1:
            continue
        explained = their["explanations"][0]
        for name, value in (("auprc", ours.auprc.values[b]), ("token_f1", ours.token_f1.values[b])):
            off = abs(float(value) - explained.get(name, 0.0))  # none is chosen: not a number there
            if not off <= SAME:
                raise Disagreement(f"{name} of text {b}: {value} and {explained.get(name)}")
            worst = max(worst, off)
        compared += 1
    return {"equal": compared, "largest_difference": worst, "undefined": len(theirs) - compared}


def times_of(
    model: TransformerClassifier,
    folder: Path,
    path: Path,
    texts: Texts,
    scores: Tensor,
    lines: list[dict[str, Any]],
    repeats: int,
) -> dict[str, Any]:
    """Time both measures of the same scores, here and in ferret's process, in turns."""

    def ours(direction: Direction, measure: Any) -> float:
        begin = time.process_time()
        found = erase_inputs(
            model, texts.dataset, {"given": scores}, at="ferret", direction=direction
        )
        curve, positive = found.curves["label_prob"].numpy(), found.positive.numpy()
        measure(curve, found.curve_offsets.numpy(), "ferret", positive=positive)
        return time.process_time() - begin

    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURES}
    for _ in range(repeats):
        theirs = ferret(folder, path, lines, "--seconds")["seconds"]
        for name, how in MEASURES.items():
            taken[name].append((ours(*how), theirs[name]))
    return {
        name: {
            "seconds": statistics.median(own for own, _ in pairs),
            "ferret_seconds": statistics.median(their for _, their in pairs),
            "faster": statistics.median(their / own for own, their in pairs),
        }
        for name, pairs in taken.items()
    }


# --- Captum --------------------------------------------------------------------------------------


def against_captum(model: TransformerClassifier, dataset: Dataset) -> dict[str, Any]:
    """Compare integrated gradients and occlusion of pieces with Captum's, a text at a time."""
    from captum.attr import LayerIntegratedGradients, Occlusion

    words, embeddings = model.words, model.model.get_input_embeddings()
    ahead, behind = len(words.before), len(words.after)
    pad = words.tokenizer.pad_token_id

    def of_tokens(given: Tensor) -> Tensor:
        # RoBERTa numbers positions without padding; here only vectors are to change.
        vectors = embeddings(given)
        logits: Tensor = model.model(inputs_embeds=vectors).logits
        return logits

    worst = {"integrated_gradients": 0.0, "occlusion": 0.0}
    ours = {
        "integrated_gradients": saliency.attribute(
            model, dataset, "integrated_gradients", baseline="padding", steps=STEPS
        ),
        "occlusion": saliency.attribute(model, dataset, "occlusion"),
    }
    for b, document in enumerate(dataset):
        ids = [*words.before, *document.token_ids.tolist(), *words.after]
        inner = slice(ahead, len(ids) - behind)
        tokens = torch.tensor([ids])
        start = tokens.clone()
        start[0, inner] = pad
        target = int(of_tokens(tokens).argmax())
        gradients = LayerIntegratedGradients(of_tokens, embeddings).attribute(
            tokens, baselines=start, target=target, n_steps=STEPS, method="gausslegendre"
        )
        with torch.no_grad():
            vectors = embeddings(tokens)
            occluded = Occlusion(lambda given: model.model(inputs_embeds=given).logits).attribute(
                vectors, sliding_window_shapes=(1, vectors.shape[2]), target=target
            )
        theirs = {
            "integrated_gradients": gradients.sum(-1)[0, inner],
            "occlusion": occluded[0, inner, 0],
        }
        for name, found in ours.items():
            off = float((found.split()[b] - theirs[name].detach()).abs().max())
            if not (int(found.target[b]) == target and off <= WITHIN):
                raise Disagreement(f"{name} of text {b}: {off:.2g} off Captum's")
            worst[name] = max(worst[name], off)
    return {"texts": len(dataset), "steps": STEPS, "largest_difference": worst}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--transformer", type=Path, required=True, help="a classifier's folder")
    parser.add_argument("--trees", type=Path, required=True, help="the treebank's folder")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="how many are taken")
    parser.add_argument("--repeats", type=int, default=3, help="turns timed, of which the median")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    loaded = load_transformer(arguments.transformer, TransformerConfig(unit="pieces"))
    model, path = loaded.model, arguments.transformer
    if model.model.config.model_type == "roberta":
        parser.error(
            "transformer: given roberta, needed bert or distilbert, whose tokenizers give a word "
            "the same pieces wherever it stands"
        )
    texts = texts_of(model, sentences(arguments.trees, arguments.sentences))
    own = {name: saliency.attribute(model, texts.dataset, name) for name in METHODS}
    scores = {name: found.scores.double() for name, found in own.items()}
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = {
                method: lines_of(texts, scores[method], found.target.tolist())
                for method, found in own.items()
            }
            found = ferret(folder, path, [line for rows in lines.values() for line in rows])
            theirs = iter(found["texts"])
            rows = {
                method: compare(model, texts, scores[method], [next(theirs) for _ in lines[method]])
                for method in METHODS
            }
            times = times_of(
                model, folder, path, texts, scores[TIMED], lines[TIMED], arguments.repeats
            )
        captum = against_captum(model, texts.dataset[:OF_CAPTUM])
    except Disagreement as error:
        print(f"no numbers: {error}", file=sys.stderr)
        return 1
    config = model.model.config
    record = {
        "machine": machine(),
        "versions": versions(),
        "ferret_versions": found["versions"],
        "model": {
            "architecture": config.model_type,
            "layers": config.num_hidden_layers,
            "width": config.hidden_size,
        },
        "texts": len(texts.texts),
        "pieces": texts.offsets[-1],
        "ferret": rows,
        "seconds": {"method": TIMED, **times},
        "captum": captum,
    }
    show(record)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one["faster"] >= 1 for one in times.values()) else 1


def show(record: dict[str, Any]) -> None:
    """Print the record's tables."""
    about, peer = record["machine"], record["ferret_versions"]
    print(
        f"{about.get('cpu')}, one thread; torch {record['versions']['torch']}, Captum "
        f"{record['versions']['captum']}; ferret {peer['ferret-xai']} with transformers "
        f"{peer['transformers']}, torch {peer['torch']}\n{record['model']['architecture']} of "
        f"{record['model']['layers']} layers of width {record['model']['width']}; "
        f"{record['texts']} sentences of {record['pieces']:,} pieces\n"
    )
    table = [
        [
            method,
            name,
            str(one["equal"]),
            f"{one['largest_difference']:.1g}",
            *(str(one["read_otherwise"][why]) for why in CHANGES),
            f"{one['largest_difference_of_what_was_read']:.1g}",
            str(one["no_positive_score"]),
        ]
        for method, row in record["ferret"].items()
        for name, one in row.items()
        if name != "plausibility"
    ]
    columns = ["scores", "measure", "equal", "off by at most", *CHANGES]
    print(markdown([*columns, "off, of what was read", "no score above 0"], table))
    for method, row in record["ferret"].items():
        marks = row["plausibility"]
        print(
            f"{method}: AUPRC and token F1 of {marks['equal']} texts are ferret's, off by at most "
            f"{marks['largest_difference']:.1g}; {marks['undefined']} without marks or all marked"
        )
    rows = [
        [name, duration(one["seconds"]), duration(one["ferret_seconds"]), f"{one['faster']:.1f}"]
        for name, one in record["seconds"].items()
        if name != "method"
    ]
    print("\n" + markdown(["all texts", "here", "ferret", "times as fast"], rows))
    found = record["captum"]
    off = ", ".join(f"{name} {value:.1g}" for name, value in found["largest_difference"].items())
    print(f"\nCaptum on {found['texts']} texts, off by at most: {off}")


if __name__ == "__main__":
    sys.exit(main())
