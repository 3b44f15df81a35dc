"""A study of two corpora small enough for tests: sentences that the words in them decide."""

from __future__ import annotations

import json
import random
from pathlib import Path

WORDS = {"good": ("fine", "great", "lovely"), "bad": ("poor", "awful", "dreary")}
STUDY = """
name = "small"

[model]
embedding_size = 8
hidden_size = 4
dropout_embedding = 0.1

[training]
epochs = 2
learning_rate = 0.02
batch_size = 16

[models.HANconv.training]
epochs = 1

[erase]
random_orders = 2
resamples = 20
exhibits = 1

[[corpora]]
name = "Films (2)"
models = ["FLANnoenc", "HANconv"]
paper = "IMDB"
[corpora.data]
path = "films.jsonl"
label_column = "mood"
min_count = 1

[[corpora]]
name = "Stars"
rows = 60
label_pattern = '_(\\d+)$'
models = ["FLANnoenc"]
[corpora.data]
path = "films.jsonl"
label_column = "name"
min_count = 1
classes = ["1", "2"]
"""


def write_small_study(folder: Path, rows: int = 80) -> Path:
    """Write `films.jsonl` and `study.toml`; give the latter."""
    chance = random.Random(3)
    with open(folder / "films.jsonl", "w", encoding="utf-8") as file:
        for number in range(rows):
            mood = ("good", "bad")[number % 2]
            words = [chance.choice(WORDS[mood]) for _ in range(chance.randint(1, 3))]
            text = "The film is " + " . It is ".join(words) + " and it ends ."
            row = {"name": f"{number}_{number % 3 + 1}", "mood": mood, "text": text}
            file.write(json.dumps(row) + "\n")
    path = folder / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path
