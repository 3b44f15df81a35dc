"""The paper's four corpora in miniature, each as a file of the format it is distributed in."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from fastattnerase.data.readers.yahoo_l6 import CATEGORIES

_FILLERS = ("the", "a", "was", "and", "we", "went", "there", "today")


def texts(classes: int, each: int, seed: int) -> Iterator[tuple[int, str]]:
    """Documents of two to four sentences, in which a word tells the class, from 0."""
    chance = random.Random(seed)
    for number in range(classes * each):
        label = number % classes
        sentences = []
        for _ in range(chance.randint(2, 4)):
            words = [chance.choice(_FILLERS) for _ in range(chance.randint(3, 6))]
            words.insert(chance.randrange(len(words)), f"topic{label}")
            sentences.append(" ".join(words).capitalize() + ".")
        yield label, " ".join(sentences)


def write_originals(root: Path) -> Path:
    """Write Webscope L6 in two parts, `data.json`, a CSV folder and the Yelp challenge's JSON."""
    folder = root / "yahoo_l6"
    folder.mkdir(parents=True)
    questions = [
        f'<vespaadd><document type="wisdom"><uri>{number}</uri><subject>{text}</subject>'
        f"<bestanswer>It is so.</bestanswer>"
        f"<maincat>{CATEGORIES[label].replace('&', '&amp;')}</maincat></document></vespaadd>\n"
        for number, (label, text) in enumerate(texts(10, 30, seed=1))
    ]
    half = len(questions) // 2
    head, tail = '<?xml version="1.0" encoding="UTF-8"?>\n<ystfeed>\n', "</ystfeed>\n"
    for part, content in enumerate((questions[:half], questions[half:]), start=1):
        path = folder / f"FullOct2007.xml.part{part}"
        path.write_text((head if part == 1 else "") + "".join(content), encoding="utf-8")
    with open(folder / "FullOct2007.xml.part2", "a", encoding="utf-8") as file:
        file.write(tail)

    reviews = [
        {"rating": str(label + 1), "title": "A film", "movie": "tt1", "review": text, "user": "u"}
        for label, text in texts(10, 30, seed=2)
    ]
    (root / "data.json").write_text(json.dumps(reviews), encoding="utf-8")

    folder = root / "amazon_review_full_csv"
    folder.mkdir()
    for split, each, seed in (("train", 30, 3), ("test", 4, 4)):
        rows = [f'"{label + 1}","A title","{text}"\n' for label, text in texts(5, each, seed)]
        (folder / f"{split}.csv").write_text("".join(rows), encoding="utf-8")

    lines = [
        json.dumps({"type": "review", "stars": label + 1, "text": text})
        for label, text in texts(5, 30, seed=5)
    ]
    lines.insert(3, json.dumps({"type": "user", "name": "A"}))
    (root / "yelp_academic_dataset_review.json").write_text("\n".join(lines), encoding="utf-8")
    return root
