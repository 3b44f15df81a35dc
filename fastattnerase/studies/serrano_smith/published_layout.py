"""A run in the field layout of the result files of Serrano and Smith's published code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.statistics.attention import entropies
from fastattnerase.studies.serrano_smith.config import ASCENDING, SINGLE_RANKINGS
from fastattnerase.studies.serrano_smith.result import Result

with needs("report"):
    import pandas as pd

NEVER = -1
_PLACES = {1: "highest", 2: "2nd_highest", -1: "lowest", -2: "2nd_lowest"}
_MULTI = {"needed": "first_flip", "probmass": "mass", "fraction": "fraction"}

Floats = NDArray[np.float64]


def export(result: Result, folder: Path) -> list[Path]:
    """Write the ten tables that the published code wrote, one row for each test instance.

    Ids count from 1 in the order of the test set. -1 stands for "never" and for what was not
    measured, in instances of length 1 and such that are not finite; the old scripts drop the former
    by their length. `log_output_val_c` are raw logits; divergences are of natural logarithms, KL of
    the new distribution from the original one. The sign-product ranking of that code was attention
    in ascending order, and is written so.

    Args:
        result: a finished run.
        folder: where to.

    Returns:
        The files: `original_results.csv`, `first_v_second.csv`, `dec_flip_stats.csv`,
        `rand_samples.csv`, `gradient_stats.csv`, `random_nontop_{attention,gradient,product}.csv`,
        `uniform_divergence.csv`, `sign_product_stats.csv`.

    Source:
        Serrano and Smith 2019, the files of their published code.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.published_layout import export
        >>> from fastattnerase.studies.serrano_smith.result import load
        >>> export(load(Path("run")), Path("out"))  # doctest: +SKIP
    """
    tables = _Tables(result)
    made: dict[str, dict[str, Any]] = {
        "original_results": tables.original(),
        "first_v_second": tables.first_and_second(),
        "dec_flip_stats": tables.length()
        | tables.flips("attention", suffix="_top")
        | tables.flips(ASCENDING, suffix="_bottom"),
        "rand_samples": tables.length() | tables.random_orders(),
        "gradient_stats": tables.length()
        | tables.flips("gradient", suffix="_grad")
        | tables.flips("product", suffix="_gradmult")
        | tables.alone("gradient", "_grad")
        | tables.alone("product", "_gradmult"),
        "uniform_divergence": tables.uniform(),
        "sign_product_stats": tables.length() | tables.flips(ASCENDING, suffix="_gradsignmult"),
    }
    for ranking in SINGLE_RANKINGS:
        made[f"random_nontop_{ranking}"] = tables.length() | tables.random_item(ranking)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, columns in made.items():
        path = folder / f"{name}.csv"
        pd.DataFrame({"id": tables.ids} | columns).to_csv(path, index=False)
        paths.append(path)
    return paths


class _Tables:
    def __init__(self, result: Result) -> None:
        self.instances = result.table("instances")
        self.single = result.table("single")
        self.multi = result.table("multi")
        self.erased = result.table("erased")
        self.orders = result.run.config.random_orders
        self.ids = np.arange(1, len(self.instances) + 1)

    def _spread(self, table: pd.DataFrame, column: str) -> NDArray[Any]:
        """Put a column of analysed instances at their rows; -1 elsewhere and for NaN."""
        whole = pd.Series(NEVER, index=self.instances["row"], dtype=table[column].dtype)
        values = table.set_index("row")[column]
        whole.loc[values.index] = values
        return np.asarray(whole.fillna(NEVER))

    def length(self) -> dict[str, Any]:
        return {"seq_len": self.instances["n"].to_numpy()}

    def original(self) -> dict[str, Any]:
        probabilities = np.stack(self.instances["probabilities"].to_list())  # [B, C]
        logits = np.stack(self.instances["logits"].to_list())
        n = self.instances["n"].to_numpy()
        entropy = np.log(np.maximum(n, 1)) - self.instances["uniform_kl"].to_numpy()
        columns: dict[str, Any] = {
            "actual_label": self.instances["gold"].fillna(NEVER).astype(int).to_numpy(),
            "orig_label_guessed": self.instances["label"].to_numpy(),
            "output_entropy": entropies(probabilities),
            "attn_entropy": np.nan_to_num(entropy, nan=NEVER),
        }
        weight = {
            place: self._spread(self._alone("attention", place), "alpha") for place in _PLACES
        }
        for name, (first, second) in {
            "1st_2nd": (1, 2),
            "last_2ndlast": (-1, -2),
            "1st_last": (1, -1),
        }.items():
            a, b = weight[first], weight[second]
            known = (a >= 0) & (b > 0)
            two = np.stack([a, b], axis=1) / np.where(known, a + b, 1)[:, None]
            columns[f"ratio_{name}"] = np.where(known, a / np.where(known, b, 1), NEVER)
            columns[f"entropy_{name}"] = np.where(known, entropies(np.abs(two)), NEVER)
        columns |= {f"log_output_val_{c}": logits[:, c] for c in range(logits.shape[1])}
        return columns

    def _alone(self, ranking: str, place: int, order: int = 0) -> pd.DataFrame:
        table = self.erased
        chosen = (table["ranking"] == ranking) & (table["place"] == place)
        return table[chosen & (table["order"] == order)]

    def first_and_second(self) -> dict[str, Any]:
        columns = {}
        for place, name in _PLACES.items():
            for field, key in (("kl", "kl"), ("js", "js"), ("dec_flip", "flip_label")):
                columns[f"{field}_{name}"] = self._spread(self._alone("attention", place), key)
        return columns

    def flips(self, ranking: str, order: int = 0, suffix: str = "") -> dict[str, Any]:
        table = self.multi
        table = table[(table["ranking"] == ranking) & (table["order"] == order)]
        flipped = table[table["first_flip"] > 0]
        return {f"{name}{suffix}": self._spread(flipped, key) for name, key in _MULTI.items()}

    def random_orders(self) -> dict[str, Any]:
        orders = range(self.orders)
        first = [self._alone("random", 1, order) for order in orders]
        columns = {
            f"{field}_{order + 1}": self._spread(first[order], key)
            for field, key in (("first_weight", "alpha"), ("kl", "kl"), ("js", "js"))
            for order in orders
        }
        flips: list[Mapping[str, Any]] = [self.flips("random", order) for order in orders]
        return columns | {
            f"{field}_{order + 1}": flips[order][field] for field in _MULTI for order in orders
        }

    def alone(self, ranking: str, suffix: str) -> dict[str, Any]:
        return {
            f"{field}_{_PLACES[place]}{suffix}": self._spread(self._alone(ranking, place), key)
            for place in (1, 2)
            for field, key in (("kl", "kl"), ("js", "js"), ("dec_flip", "flip_label"))
        }

    def random_item(self, ranking: str) -> dict[str, Any]:
        table = self.single[self.single["ranking"] == ranking]
        return {
            "dec_flip": np.where(self._spread(table, "r_flip_label") >= 0, 1, NEVER),
            "zeroed_weight": self._spread(table, "r_alpha"),
            "kl": self._spread(table, "r_kl"),
            "js": self._spread(table, "r_js"),
        }

    def uniform(self) -> dict[str, Any]:
        return {
            "length": self.instances["n"].to_numpy(),
            "kl": self.instances["uniform_kl"].fillna(NEVER).to_numpy(),
            "js": self.instances["uniform_js"].fillna(NEVER).to_numpy(),
        }
