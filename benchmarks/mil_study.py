"""Do attention, single patches and Shapley values find the instances that decide a bag?

    python benchmarks/mil_study.py --data corpora      # minutes; writes benchmarks/results/mil
    python benchmarks/mil_study.py --smoke             # seconds, digits alone; what the tests run

torchmil's gated ABMIL is trained here with several seeds on real bags: scikit-learn's digits, where
a bag is positive that has a nine, so that the key instances are known, and hotel reviews as bags of
sentences (`reviews_5class/hotel_reviews.csv.xz`: one and two stars against five), whose sentences
are TF-IDF vectors brought to 64 dimensions on the training reviews. Each model goes the way of a
user's: its state dict and files of bags are read by `fastattnerase.mil`, and its test bags erased.
The tables hold means over seeds with 95 % intervals of the bootstrap over bags, and README.md what
they say by the rules that stand in it.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn

from fastattnerase import mil
from fastattnerase.mil.options import Options
from fastattnerase.mil.run import MilResult, erase_slides
from fastattnerase.statistics.bootstrap import Bootstrap, Estimate

RESULTS = Path(__file__).parent / "results" / "mil"
KEY = 9  # the digit that makes a bag positive
SEEDS = 3
SCORES = ("attention", "single", "one_removed", "shapley")
NAMES = {
    "attention": "attention", "single": "single instances", "one_removed": "one removed",
    "shapley": "Shapley values", "gradient": "gradient", "product": "product", "random": "random",
}  # fmt: skip
Floats = NDArray[np.float64]
Bags = list[tuple[Floats, int, NDArray[np.bool_] | None]]  # vectors, label, which are key


@dataclass(frozen=True)
class Data:
    """Bags to train on and bags to erase."""

    name: str
    instances: str
    classes: tuple[str, str]
    train: Bags
    test: Bags
    epochs: int


def digits(train: int, test: int) -> Data:
    """Bags of 20 to 60 digits, half with one to three nines; images of both parts differ."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    parts = order[: len(order) * 2 // 3], order[len(order) * 2 // 3 :]

    def bags(own: NDArray[np.int64], count: int) -> Bags:
        keys, others = own[labels[own] == KEY], own[labels[own] != KEY]
        made: Bags = []
        for place in range(count):
            n, k = int(rng.integers(20, 61)), int(rng.integers(1, 4)) * (place % 2)
            chosen = np.concatenate([rng.choice(keys, k), rng.choice(others, n - k)])
            chosen = rng.permutation(chosen)
            made.append((images[chosen] / 16, place % 2, labels[chosen] == KEY))
        return made

    train_bags, test_bags = bags(parts[0], train), bags(parts[1], test)
    return Data("digits", "digits", ("without a nine", "with a nine"), train_bags, test_bags, 20)


def reviews(path: Path, train: int, test: int) -> Data:
    """Reviews of three sentences or more, one and two stars against five, as bags of sentences."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [(int(row["stars"]), row["text"]) for row in csv.DictReader(file)]
    texts = list(dict.fromkeys((stars, text) for stars, text in rows if stars in (1, 2, 5)))
    split = [(int(stars == 5), [s for s in re.split(r"(?<=[.!?])\s+", text) if len(s) > 2])
             for stars, text in texts]  # fmt: skip
    rng = np.random.default_rng(0)
    own = [[bag for bag in split if bag[0] == label and len(bag[1]) >= 3] for label in (0, 1)]
    count = min((train + test) // 2, *map(len, own))
    pairs = zip(*(([bags[i] for i in rng.permutation(len(bags))[:count]]) for bags in own),
                strict=True)  # fmt: skip
    mixed = [bag for pair in pairs for bag in pair]
    tests, trains = mixed[:test], mixed[test:]
    vectorizer = TfidfVectorizer(min_df=3, sublinear_tf=True, ngram_range=(1, 2))
    svd = TruncatedSVD(64, random_state=0)
    svd.fit(vectorizer.fit_transform([s for _, sentences in trains for s in sentences]))
    scale = 8.0  # vectors are short: words that a sentence lacks are most of TF-IDF's length

    def bags(of: list[tuple[int, list[str]]]) -> Bags:
        return [(scale * svd.transform(vectorizer.transform(s)), label, None) for label, s in of]

    return Data("reviews", "sentences", ("1 or 2 stars", "5 stars"), bags(trains), bags(tests), 6)


def train(data: Data, seed: int) -> nn.Module:
    """Train torchmil's gated ABMIL, a bag a step."""
    from torchmil.models import ABMIL

    torch.manual_seed(seed)
    width = data.train[0][0].shape[1]
    embed = nn.Sequential(nn.Linear(width, 64), nn.ReLU())
    model = ABMIL(in_shape=(width,), att_dim=32, gated=True, feat_ext=embed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    bags = [(torch.tensor(x, dtype=torch.float32)[None], float(y)) for x, y, _ in data.train]
    for _ in range(data.epochs):
        for i in torch.randperm(len(bags)).tolist():
            x, y = bags[i]
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), torch.tensor([y]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    module: nn.Module = model.eval()
    return module


def erase(data: Data, seed: int, folder: Path) -> MilResult:
    """Train a model, and erase its test bags as a user would: from files."""
    module = train(data, seed)
    torch.save(module.state_dict(), folder / "model.pt")
    embed: nn.Module = module.get_submodule("feat_ext")
    model = mil.read_model(folder / "model.pt", embed=embed)
    bags = folder / "bags"
    bags.mkdir()
    with (folder / "labels.csv").open("w", encoding="utf-8") as file:
        file.write("slide_id,label\n")
        for place, (vectors, label, _) in enumerate(data.test):
            np.save(bags / f"{place:04}.npy", vectors.astype(np.float32))
            file.write(f"{place:04},{label}\n")
    options = Options(rankings=("shapley",), random_orders=5, resamples=1000)
    labels = mil.read_labels(folder / "labels.csv")
    return erase_slides(model, mil.find_bags(bags), labels, options, folder / "run", name=data.name)


def keys_found(data: Data, result: MilResult) -> Iterator[dict[str, object]]:
    """How well each score tells the key instances, in bags rightly decided to have some."""
    slides = result.table("slides").set_index("slide_id")
    for slide, patches in result.table("patches").groupby("slide_id"):
        key = data.test[int(str(slide))][2]
        row = slides.loc[str(slide)]
        if key is None or not row["label"] == row["decision"] == 1:
            continue
        for score in SCORES:
            values = patches[score].to_numpy()
            yield {
                "bag": slide,
                "ranking": score,
                "auroc": roc_auc_score(key, values),
                "auprc": average_precision_score(key, values),
                "chance": key.mean(),
            }


def study(data: Data, seeds: int) -> dict[str, pd.DataFrame]:
    """Run a data set with every seed; the rows of its tables."""
    found: dict[str, list[pd.DataFrame]] = {"models": [], "bags": [], "keys": [], "curves": []}
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            result = erase(data, seed, Path(folder))
            slides, rankings = result.table("slides"), result.table("rankings")
            summary = result.summary
            shares = slides["minimal_size"].where(slides["minimal_size"] > 0) / slides["n"]
            model = {
                "accuracy": summary["accuracy"],
                "majority": summary["majority"],
                "bags": len(slides),
                "instances": summary["patches"],
                "smallest_share": shares.fillna(np.inf).median(),
                "smallest_items": slides["minimal_size"].where(slides["minimal_size"] > 0).median(),
                "flippable": shares.notna().mean(),
                "one_suffices": (slides["sufficient_size"] == 1).mean(),
            }
            found["models"].append(pd.DataFrame([model]).assign(seed=seed))
            found["bags"].append(rankings.assign(seed=seed))
            found["keys"].append(pd.DataFrame(keys_found(data, result)).assign(seed=seed))
            found["curves"].append(result.table("curves").assign(seed=seed))
    return {name: pd.concat(parts).assign(data=data.name) for name, parts in found.items()}


def interval(values: pd.Series) -> Estimate:
    """The mean over bags of what is a bag's mean over seeds."""
    return Bootstrap(seed=0).summarise(values.to_numpy(dtype=np.float64))["mean"]


def described(rows: pd.DataFrame, measure: str, bag: str) -> pd.DataFrame:
    """Means of a measure by ranking with intervals, and of the difference from attention."""
    table = rows.pivot_table(index=bag, columns="ranking", values=measure)  # means over seeds
    made = []
    for ranking in [name for name in NAMES if name in table]:
        own, apart = interval(table[ranking]), interval(table[ranking] - table["attention"])
        made.append(
            {"measure": measure, "ranking": ranking, "mean": own.value, "low": own.low,
             "high": own.high, "over_attention": apart.value, "over_low": apart.low,
             "over_high": apart.high, "bags": int(table[ranking].notna().sum())}
        )  # fmt: skip
    return pd.DataFrame(made)


def tables(found: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables that are kept."""
    measures = []
    for name, own in found["bags"].groupby("data", sort=False):
        for measure in ("symmetric_relevance_gain", "normalized_area", "aopc_over_random"):
            measures.append(described(own, measure, "slide_id").assign(data=name))
    keys = found["keys"]
    for name, own in keys.groupby("data", sort=False):
        for measure in ("auroc", "auprc", "chance") if len(own) and "bag" in own else ():
            measures.append(described(own, measure, "bag").assign(data=name))
    flips = found["bags"].assign(fraction=found["bags"]["fraction"].fillna(np.inf))
    medians = flips.groupby(["data", "ranking"], sort=False)["fraction"].median()
    curves = found["curves"]
    curves = curves[curves["percent"] % 5 == 0]
    grouped = curves.groupby(["data", "ranking", "percent"], sort=False)
    return {
        "models": found["models"],
        "measures": pd.concat(measures),
        "first_flips": medians.reset_index(),
        "curves": grouped[["most_first", "least_first"]].mean().reset_index(),
    }


RULES = (
    "Rules: a score finds key instances where the 95 % interval of its mean AUROC, over bags "
    "rightly decided to have some, lies above 0.5. One ranking is better than attention where the "
    "interval of the mean difference, bag by bag, of the measure that is named lies above 0, and "
    "worse where it lies below. Medians count a decision that never changes as beyond everything."
)
FILES = {
    "models": "a row a model: accuracy beside that of the most frequent class, smallest sets, how "
    "often one instance suffices",
    "measures": "means over bags of each measure by ranking, means over seeds first, with 95 % "
    "intervals, and of the difference from attention; AUROC and AUPRC of the key instances where "
    "they are known",
    "first_flips": "median share of the instances erased when the decision first changes",
    "curves": "mean curves at every 5 %, most and least important first; `bounds`: the least and "
    "the largest that any order reaches",
}


def paragraph(kept: dict[str, pd.DataFrame]) -> str:
    """What the tables say by the rules."""
    measures, told = kept["measures"], []
    auroc = measures[measures["measure"] == "auroc"].set_index("ranking")
    if len(auroc):
        auprc = measures[measures["measure"] == "auprc"].set_index("ranking")
        chance = measures[measures["measure"] == "chance"]["mean"].iloc[0]
        finds = [name for name in auroc.index if auroc.loc[name, "low"] > 0.5]
        said = ", ".join(
            f"{NAMES[name]} {auroc.loc[name, 'mean']:.3f} ({auroc.loc[name, 'low']:.3f} to "
            f"{auroc.loc[name, 'high']:.3f}; AUPRC {auprc.loc[name, 'mean']:.3f})"
            for name in auroc.index
        )
        told.append(
            f"Of bags of digits the nines are found, by AUROC, by {len(finds)} of {len(auroc)} "
            f"scores: {said}; a random order has 0.5 and an AUPRC of about {chance:.3f}."
        )
        told.append(_beside(auprc, "AUPRC of the nines"))
    for name, models in kept["models"].groupby("data", sort=False):
        gain = measures[measures["data"] == name].set_index(["measure", "ranking"])
        flips = kept["first_flips"].set_index(["data", "ranking"])["fraction"]
        area = gain.loc["normalized_area"]
        told.append(
            f"On {name} ({models['accuracy'].mean():.1%} right, {models['majority'].mean():.1%} by "
            f"the most frequent class) a smallest set exists for {models['flippable'].mean():.0%} "
            f"of the decisions and has {_share(models['smallest_share'].median())} of the "
            f"instances in the median; one instance alone gives the decision in "
            f"{models['one_suffices'].mean():.0%}. Half of the decisions have changed after "
            f"{_share(flips[name, 'attention'])} by attention, {_share(flips[name, 'shapley'])} by "
            f"Shapley values and {_share(flips[name, 'random'])} in random orders. Between the "
            f"worst (0) and the best (1) that any order can do, attention is at "
            f"{area.loc['attention', 'mean']:.3f}, Shapley values at "
            f"{area.loc['shapley', 'mean']:.3f} and a random order at "
            f"{area.loc['random', 'mean']:.3f}."
        )
        told.append(_beside(gain.loc["symmetric_relevance_gain"], "symmetric relevance gain"))
    return " ".join(told).replace("%", " %")


def _share(share: float) -> str:
    return "none of them" if np.isinf(share) else f"{share:.1%}"


def _beside(table: pd.DataFrame, what: str) -> str:
    """Say which rankings are better than attention, which worse."""
    better = [NAMES[name] for name in table.index if table.loc[name, "over_low"] > 0]
    worse = [
        NAMES[name] for name in table.index if table.loc[name, "over_high"] < 0 and name != "random"
    ]
    return (
        f"By {what}, better than attention: {', '.join(better) or 'none'}; worse: "
        f"{', '.join(worse) or 'none'}."
    )


def readme(kept: dict[str, pd.DataFrame], seeds: int) -> str:
    """The page beside the tables."""
    about = (
        f"`benchmarks/mil_study.py` trains torchmil's gated ABMIL with {seeds} seeds on bags of "
        "scikit-learn's digits (positive: with a nine) and on hotel reviews as bags of sentences, "
        "reads weights and bags as `fastattnerase.mil` reads anyone's, and erases the test bags."
    )
    files = "\n".join(f"| `{name}.csv` | {what} |" for name, what in FILES.items())
    title = "# Which instances decide: attention, single instances and Shapley values"
    table = f"| file | holds |\n| --- | --- |\n{files}\n"
    return "\n\n".join([title, about, paragraph(kept), RULES, table])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with reviews_5class")
    parser.add_argument("--smoke", action="store_true", help="small, digits alone")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where tables go")
    arguments = parser.parse_args(argv)
    if (arguments.data is None) != arguments.smoke:
        parser.error("--data: needed, or --smoke")
    torch.set_num_threads(1)
    seeds = 2 if arguments.smoke else SEEDS
    data = [digits(40, 12) if arguments.smoke else digits(400, 150)]
    if arguments.data is not None:
        data.append(reviews(arguments.data / "reviews_5class" / "hotel_reviews.csv.xz", 600, 150))
    parts = [study(one, seeds) for one in data]
    kept = tables({name: pd.concat([part[name] for part in parts]) for name in parts[0]})
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, table in kept.items():
        table.to_csv(arguments.out / f"{name}.csv", index=False, float_format="%.6g")
    # Read again, so that the page says what the files hold.
    kept = {name: pd.read_csv(arguments.out / f"{name}.csv") for name in kept}
    (arguments.out / "README.md").write_text(readme(kept, seeds), encoding="utf-8")
    print(paragraph(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
