"""The studies of Wen, Subbalakshmi and Yang (2022): every model, measured, cell by cell.

A cell is one trained model with its measurements, in a folder of its own; `result.json` appears
there last. Cells that need another's model wait for it; the rest run in any order, in parallel
processes, and a killed study goes on where it stood.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.runs import rundir
from fastattnerase.runs.rundir import RunError
from fastattnerase.runs.shape import CELL, check_shape

if TYPE_CHECKING:
    from fastattnerase.data import DataConfig, PreparedCorpus
    from fastattnerase.models import AttentionClassifier, ModelConfig, Objective, TrainConfig

Report = Callable[[float], None]  # called with the share of a unit that is done

ENCODERS = ("bilstm", "cnn", "mlp")
ATTENTIONS = ("additive", "deep", "dot")
STUDIES = ("grid", "gumbel", "fix", "adversary")
DATASETS = ("sst", "20news_sports", "imdb_5k", "ag_news")
SMALL_DATASETS = ("sst", "20news_sports")
FIX_ATTENTION = ("uniform", "trained", "random", "parameters")
FIX_REPRESENTATION = ("trained", "trained_kept", "random")
VARIANTS = (
    "normal",
    *(f"attention_{reading}" for reading in FIX_ATTENTION),
    *(f"representation_{reading}" for reading in FIX_REPRESENTATION),
    "adversary",
)
BEST = ("bilstm", "additive")  # the combination that ablation and adversary look at

# The published λ; of IMDB's for its part, and of the tweets' for the posts in their place.
STRENGTHS = {
    "sst": 5.25e-4,
    "imdb": 8e-4,
    "imdb_5k": 8e-4,
    "ag_news": 5e-4,
    "20news_sports": 5e-4,
    "psytar": 5e-4,
}

# Added to a seed for initial values that are not the base model's; the largest such number.
_ADVERSARY = 2_000_003
_MOST_SEED = 2**63 - 1 - _ADVERSARY

DATA, CELLS, MANIFEST = "data", "cells", "manifest.json"
_COSTS = {"sst": 1.0, "20news_sports": 1.0, "ag_news": 0.8, "imdb_5k": 3.5, "imdb": 20.0}
_ENCODER_COSTS = {"bilstm": 2.0, "cnn": 1.2, "mlp": 0.6}


@dataclass(frozen=True)
class Options:
    """What is trained and measured, and how; what cuts a study's size is an option.

    Args:
        datasets: of the grid, names of `data.presets`.
        seeds: of the grid; initial parameters and batches.
        encoders, attentions: the grid.
        mechanisms: of the grid: `softmax`, also `sparsemax`.
        studies: `grid` (Figure 2), `gumbel` (Table 5), `fix` (Table 2), `adversary` (Tables 3
            and 4).
        small_datasets, small_seeds: of the studies but the grid.
        vectors: a file of word vectors; None starts from random ones of `embedding_size`.
        embedding_size: see there.
        hidden_size: of BiLSTM (a direction) and MLP.
        channels: filters of each width of the CNN; the paper can be read as 128, Jain & Wallace
            have 32.
        attention_size: width of additive and deep attention; None: half the encoder's output.
        attention_depth: layers of deep attention after its first.
        scaled_dot: dot attention divides by the square root of the width, as Jain & Wallace do.
        activation: of the MLP: `tanh` (Jain & Wallace's code) or `relu`.
        temperature, gumbel_noise, gumbel_hard: of Gumbel-softmax, see `ModelConfig`.
        epochs: of every model but adversaries.
        selection: of the epoch, by dev `auc` (Jain & Wallace) or `accuracy`.
        class_weights: in training, `balanced` (Jain & Wallace) or `none`.
        attention_weight_decay: 0 (Jain & Wallace), or 1e-5 as of the rest.
        adversary_epochs, adversary_patience: at most, and without a lower training loss.
        strength: λ of all adversaries; None takes the published ones.
        tvd: of the outputs' difference in the adversary's loss; 0.5 as published, or 1.
        max_tokens: documents are cut after so many words.
        max_train, max_test: documents, at most.
        ranks, clusters, codebook, algorithm, output_clusters, output_space, exclude, shuffles,
            max_ranks: of the measurement, see `mi.Config`.
        backend: of the engine.

    Raises:
        RunError: a name that is not known, or a number out of range.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 5 and appendix A.

    Example:
        >>> Options(seeds=(0,)).studies
        ('grid', 'gumbel', 'fix', 'adversary')
    """

    datasets: tuple[str, ...] = DATASETS
    seeds: tuple[int, ...] = (0, 1, 2)
    encoders: tuple[str, ...] = ENCODERS
    attentions: tuple[str, ...] = ATTENTIONS
    mechanisms: tuple[str, ...] = ("softmax",)
    studies: tuple[str, ...] = STUDIES
    small_datasets: tuple[str, ...] = SMALL_DATASETS
    small_seeds: tuple[int, ...] = (0,)
    vectors: str | None = None
    embedding_size: int = 300
    hidden_size: int = 128
    channels: int = 32
    attention_size: int | None = None
    attention_depth: int = 2
    scaled_dot: bool = False
    activation: str = "tanh"
    temperature: float = 0.8
    gumbel_noise: str = "fresh"
    gumbel_hard: bool = False
    epochs: int = 8
    selection: str = "auc"
    class_weights: str = "balanced"
    attention_weight_decay: float = 0.0
    adversary_epochs: int = 80
    adversary_patience: int = 10
    strength: float | None = None
    tvd: float = 0.5
    max_tokens: int | None = None
    max_train: int | None = None
    max_test: int | None = None
    ranks: int | str = "both"
    clusters: int | str = "largest"
    codebook: str = "rank"
    algorithm: str = "full"
    output_clusters: int = 5
    output_space: str = "logit"
    exclude: str = "masked"
    shuffles: int = 100
    max_ranks: int | None = None
    backend: str = "auto"

    def __post_init__(self) -> None:
        from fastattnerase.data.presets import PRESETS

        for name, known in (
            ("datasets", tuple(PRESETS)),
            ("small_datasets", tuple(PRESETS)),
            ("encoders", ENCODERS),
            ("attentions", ATTENTIONS),
            ("mechanisms", ("softmax", "sparsemax")),
            ("studies", STUDIES),
        ):
            given = getattr(self, name)
            if not given:
                raise RunError(f"{name} is empty; at least one of {', '.join(known)} is needed")
            unknown = [item for item in given if item not in known]
            if unknown or len(set(given)) < len(given):
                raise RunError(
                    f"{name} is {', '.join(map(str, given))}; distinct names of "
                    f"{', '.join(known)} are needed"
                )
        for name in ("seeds", "small_seeds"):
            seeds = getattr(self, name)
            fits = seeds and min(seeds) >= 0 and max(seeds) <= _MOST_SEED
            if not fits or len(set(seeds)) < len(seeds):
                raise RunError(
                    f"{name} is {seeds}; distinct numbers from 0 to {_MOST_SEED} are needed"
                )
        for name in (
            "hidden_size", "channels", "epochs", "adversary_epochs", "adversary_patience",
            "embedding_size", "attention_size", "max_tokens", "max_train", "max_test",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RunError(f"{name} is {value}; at least 1 is needed")
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise RunError(f"strength is {self.strength}; a number from 0 is needed")
        if not 0 < self.tvd < math.inf:
            raise RunError(f"tvd is {self.tvd}; a number above 0 is needed")
        self.measurement("normal")
        try:
            for encoder in ENCODERS:
                self.model(Unit("sst", encoder, BEST[1], "softmax", "normal"))
            self.training(0)
        except ValueError as error:
            raise RunError(str(error)) from error

    def model(self, unit: Unit) -> ModelConfig:
        """Configure the model of a cell."""
        from fastattnerase.models.wen import jain_wallace

        config = jain_wallace(
            unit.encoder,
            unit.attention,
            unit.mechanism,
            embedding_size=self.embedding_size,
            hidden_size=self.hidden_size,
            channels=self.channels,
            seed=unit.seed,
        )
        return replace(
            config,
            attention_size=self.attention_size or config.attention_size,
            attention_depth=self.attention_depth,
            attention_scaled=self.scaled_dot,
            activation=self.activation,  # type: ignore[arg-type]
            temperature=self.temperature,
            gumbel_noise=self.gumbel_noise,  # type: ignore[arg-type]
            gumbel_hard=self.gumbel_hard,
        )

    def training(self, seed: int) -> TrainConfig:
        """Configure the training of all models but adversaries."""
        from fastattnerase.models.train_config import jain_wallace

        return replace(
            jain_wallace(epochs=self.epochs, seed=seed),
            selection=self.selection,  # type: ignore[arg-type]
            class_weights=self.class_weights,  # type: ignore[arg-type]
            attention_weight_decay=self.attention_weight_decay,
        )

    def measurement(self, variant: str) -> Any:
        """Give the measurement's configuration for a variant."""
        from fastattnerase.mi import Config

        # Without attention there are no weights to correlate with but the ranks, which are
        # positions then.
        uniform = variant == "attention_uniform"
        try:
            return Config(
                ranks=self.ranks,  # type: ignore[arg-type]
                clusters=self.clusters,  # type: ignore[arg-type]
                codebook=self.codebook,  # type: ignore[arg-type]
                algorithm=self.algorithm,  # type: ignore[arg-type]
                output_clusters=self.output_clusters,
                output_space=self.output_space,  # type: ignore[arg-type]
                exclude=self.exclude,  # type: ignore[arg-type]
                shuffles=self.shuffles,
                max_ranks=self.max_ranks,
                constant_attention="by_position" if uniform else "undefined",
                backend=self.backend,
            )
        except ValueError as error:
            raise RunError(str(error)) from error

    def used(self, unit: Unit) -> dict[str, Any]:
        """Give the options that a unit's numbers depend on, beside which unit it is.

        Of the word vectors the file's name: where it lies makes no other numbers.
        """
        options = dataclasses.asdict(self)
        if unit.is_data:
            return {name: options[name] for name in ("max_tokens", "max_train", "max_test")}
        for name in (
            "datasets", "seeds", "encoders", "attentions", "mechanisms", "studies",
            "small_datasets", "small_seeds",
        ):  # fmt: skip
            del options[name]
        unused = {"channels"} if unit.encoder != "cnn" else {"hidden_size"}
        if unit.encoder != "mlp":
            unused |= {"activation"}
        if unit.attention != "dot":
            unused |= {"scaled_dot"}
        if unit.attention == "dot":
            unused |= {"attention_size"}
        if unit.attention != "deep":
            unused |= {"attention_depth"}
        if unit.mechanism != "gumbel":
            unused |= {"temperature", "gumbel_noise", "gumbel_hard"}
        if unit.variant != "adversary":
            unused |= {"adversary_epochs", "adversary_patience", "strength", "tvd"}
        if self.vectors is not None:
            unused |= {"embedding_size"}
            options["vectors"] = Path(self.vectors).name
        return {name: value for name, value in options.items() if name not in unused}


@dataclass(frozen=True)
class Unit:
    """One step of a study: data of a data set, or a cell."""

    dataset: str
    encoder: str = ""
    attention: str = ""
    mechanism: str = ""
    variant: str = ""
    seed: int = 0

    @property
    def is_data(self) -> bool:
        """Whether this prepares data."""
        return not self.encoder

    @property
    def key(self) -> str:
        """The name, as in the manifest and as a folder."""
        if self.is_data:
            return f"{DATA}/{self.dataset}"
        model = f"{self.encoder}-{self.attention}-{self.mechanism}"
        return f"{CELLS}/{self.dataset}/{model}-{self.variant}-{self.seed}"

    @property
    def cost(self) -> float:
        """How long it takes, roughly, against others."""
        size = _COSTS.get(self.dataset, 1.0)
        if self.is_data:
            return 0.2 * size
        several = {"adversary": 5.0, "normal": 1.4 if self.mechanism == "gumbel" else 1.0}
        return size * _ENCODER_COSTS[self.encoder] * several.get(self.variant, 1.0)

    @property
    def base(self) -> Unit | None:
        """The cell whose model this one starts from."""
        if self.is_data or self.variant == "normal":
            return None
        return replace(self, variant="normal")


class Workspace:
    """A study in a folder: which units there are, which are done, and how one is run.

    Args:
        options: the study.
        root: the folder with a folder of each data set.
        out: the folder of everything that is made.
        device: where models are trained.

    Example:
        >>> from pathlib import Path
        >>> options = Options(datasets=("sst",), seeds=(0,), studies=("grid",))
        >>> len(Workspace(options, Path("data"), Path("runs/wen")).units())
        10
    """

    def __init__(self, options: Options, root: Path, out: Path, device: str = "cpu") -> None:
        self.options = options
        self.root = root
        self.out = out
        self.device = device

    def units(self) -> dict[Unit, list[Unit]]:
        """List the units, each with those that must be done before it, after them."""
        cells: dict[Unit, None] = {}
        for unit in self._cells():
            if unit.base is not None:
                cells[unit.base] = None
            cells[unit] = None
        units: dict[Unit, list[Unit]] = {}
        for unit in cells:
            data = Unit(unit.dataset)
            units.setdefault(data, [])
            units[unit] = [data] if unit.base is None else [data, unit.base]
        return units

    def _cells(self) -> Iterator[Unit]:
        o = self.options
        if "grid" in o.studies:
            for seed in o.seeds:
                for dataset in o.datasets:
                    for mechanism in o.mechanisms:
                        for e in o.encoders:
                            for a in o.attentions:
                                yield Unit(dataset, e, a, mechanism, "normal", seed)
        for seed in o.small_seeds:
            for dataset in o.small_datasets:
                if "gumbel" in o.studies:
                    for e in o.encoders:
                        for a in o.attentions:
                            for mechanism in ("softmax", "gumbel"):
                                yield Unit(dataset, e, a, mechanism, "normal", seed)
                for variant in VARIANTS[1:]:
                    study = "adversary" if variant == "adversary" else "fix"
                    if study in o.studies:
                        yield Unit(dataset, *BEST, "softmax", variant, seed)

    def folder(self, unit: Unit) -> Path:
        """Give the folder of a unit."""
        return self.out / unit.key

    def state(self, unit: Unit) -> dict[str, Any]:
        """Say what a unit's numbers depend on, JSON-able."""
        options = self.options.used(unit)
        if not unit.is_data:
            options["device"] = self.device
        return {"unit": dataclasses.asdict(unit), "options": options}

    def done(self, unit: Unit) -> dict[str, Any] | None:
        """Give the result of a unit, None where it is not finished.

        Raises:
            RunError: it was made with other options.
        """
        path = self.folder(unit) / rundir.RESULT
        if not path.exists():
            return None
        result = rundir.read_json(path)
        check_shape(result, CELL, path)
        state = result["state"]
        # Results of the first version name all options, the vectors' folder, the device apart.
        before = {"device": state.get("device")} | state["options"]
        if before.get("vectors") is not None:
            before["vectors"] = Path(before["vectors"]).name
        changed = [
            f"{name} is {before.get(name)!r} there and {value!r} here"
            for name, value in self.state(unit)["options"].items()
            if before.get(name) != value
        ]
        if changed:
            raise RunError(
                f"{path.parent} was made with other options ({'; '.join(changed)}); "
                f"choose another --out, or delete that folder"
            )
        return result

    def run(self, unit: Unit, report: Report) -> dict[str, Any]:
        """Do a unit and write its result.

        Args:
            unit: one of `units`, those before it done.
            report: told the share that is done.

        Returns:
            The result.
        """
        folder = self.folder(unit)
        folder.mkdir(parents=True, exist_ok=True)
        with rundir.locked(folder):
            before = self.done(unit)
            if before is not None:
                return before
            started = time.monotonic()
            result = self._prepare(unit) if unit.is_data else self._cell(unit, folder, report)
            result |= {"state": self.state(unit), "seconds": time.monotonic() - started}
            rundir.write_json(folder / rundir.RESULT, result)
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)  # data have none
            return result

    def write_manifest(self) -> dict[str, Any]:
        """Write which units there are and which are done."""
        units = {}
        for unit in self.units():
            result = self.done(unit)
            units[unit.key] = {
                "done": result is not None,
                "seconds": None if result is None else result["seconds"],
            }
        manifest = {"options": _jsonable(dataclasses.asdict(self.options)), "units": units}
        rundir.write_json(self.out / MANIFEST, manifest | rundir.provenance())
        return manifest

    def results(self) -> dict[Unit, dict[str, Any]]:
        """Give the results of all finished cells of this study."""
        found = ((unit, self.done(unit)) for unit in self.units() if not unit.is_data)
        return {unit: result for unit, result in found if result is not None}

    # --- units -----------------------------------------------------------------------------------

    def _prepare(self, unit: Unit) -> dict[str, Any]:
        from fastattnerase.data.presets import write_preset

        o = self.options
        about = write_preset(
            unit.dataset,
            self.root,
            self.folder(unit) / "prepared",
            max_tokens=o.max_tokens,
            max_train=o.max_train,
            max_test=o.max_test,
        )
        return {"about": about}

    def load_data(self, dataset: str) -> tuple[PreparedCorpus, DataConfig]:
        """Load the prepared data of a data set, with the word vectors."""
        from fastattnerase.data.presets import read_prepared

        folder = self.folder(Unit(dataset)) / "prepared"
        return read_prepared(folder, vectors=self.options.vectors)

    def _cell(self, unit: Unit, folder: Path, report: Report) -> dict[str, Any]:
        from fastattnerase.models import evaluate, save_model, train
        from fastattnerase.studies.serrano_smith.workspace import reporting
        from fastattnerase.studies.wen.models import Outputs, attention_shape, divergence

        prepared, data_config = self.load_data(unit.dataset)
        base = None if unit.base is None else self._load(unit.base)
        model, objective, training = self._untrained(unit, prepared, base)
        trained = train(
            model,
            prepared.train,
            prepared.dev,
            training,
            folder,
            progress=reporting(lambda share: report(0.8 * share), training.epochs),
            device=self.device,
            description={"variant": unit.variant},
            objective=objective,
        )
        report(0.8)
        tested = evaluate(model, prepared.test)
        result: dict[str, Any] = {
            "accuracy": tested.accuracy,
            "f1": f1(tested.decisions.numpy(), tested.labels.numpy()),
            "auc": None if math.isnan(tested.auc) else tested.auc,
            "dev_accuracy": trained.dev_accuracy,
            "best_epoch": trained.best_epoch,
            "epochs": len(trained.history),
            "documents": {
                split: len(getattr(prepared, split)) for split in ("train", "dev", "test")
            },
            "vectors_found": prepared.vectors_found,
        }
        result["measurements"] = {
            name: self._measure(unit, name, measured, prepared, folder)
            for name, measured in self._measured(unit, model, prepared)
        }
        keys = [document.id for document in prepared.test]
        if unit.mechanism == "softmax":
            outputs = Outputs(model, [prepared.test])
            if model.erases_scores:
                result["attention"] = attention_shape(outputs, keys)
            if unit.variant == "adversary":
                assert base is not None
                apart = divergence(outputs, Outputs(base, [prepared.test]), keys)
                result["divergence"] = dataclasses.asdict(apart)
                result["strength"] = self._strength(unit.dataset)
        if unit.variant in ("normal", "adversary"):
            save_model(
                folder / "model",
                model,
                vocabulary=prepared.vocabulary,
                classes=prepared.classes,
                data_config=data_config,
                train_config=training,
                metadata={
                    "name": f"{unit.dataset} {unit.encoder} {unit.attention} {unit.mechanism}",
                    "test_accuracy": tested.accuracy,
                    "dev_accuracy": trained.dev_accuracy,
                    "best_epoch": trained.best_epoch,
                },
            )
        return result

    def _load(self, unit: Unit) -> AttentionClassifier:
        from fastattnerase.models import load_model

        return load_model(self.folder(unit) / "model", device=self.device).model

    def _untrained(
        self, unit: Unit, prepared: PreparedCorpus, base: AttentionClassifier | None
    ) -> tuple[AttentionClassifier, Objective | None, TrainConfig]:
        """Make the model of a cell, its loss and its training."""
        from fastattnerase.models.build import build_model
        from fastattnerase.studies.wen import models as wen_models

        config = self.options.model(unit)
        training = self.options.training(unit.seed)
        if base is None:
            size = len(prepared.classes)
            model = build_model(config, prepared.vocabulary, size, prepared.embeddings)
            return model, None, training
        kind, _, reading = unit.variant.partition("_")
        if kind == "attention":
            model = wen_models.fixed_attention(reading, config, prepared, base)
            return model, None, training
        if kind == "representation":
            model = wen_models.fixed_representation(reading, config, prepared, base)
            return model, None, training
        anew = replace(config, seed=config.seed + _ADVERSARY)
        model = build_model(anew, prepared.vocabulary, len(prepared.classes), prepared.embeddings)
        imitated = wen_models.Outputs(base, [prepared.train])
        objective = wen_models.adversary_objective(
            imitated, self._strength(unit.dataset), self.options.tvd
        )
        training = replace(
            training,
            epochs=self.options.adversary_epochs,
            patience=self.options.adversary_patience,
            selection="train_loss",
            class_weights="none",
            first_epoch=1,
        )
        return model, objective, training

    def _strength(self, dataset: str) -> float:
        return STRENGTHS[dataset] if self.options.strength is None else self.options.strength

    def _measured(
        self, unit: Unit, model: AttentionClassifier, prepared: PreparedCorpus
    ) -> Iterator[tuple[str, AttentionClassifier]]:
        """Name the models to measure: with Gumbel also with noise, and with equal scores."""
        if unit.mechanism != "gumbel":
            yield "main", model
            return
        from fastattnerase.models.build import build_model

        yield "noise_off", model
        for name, attention in (("noise_on", unit.attention), ("equal_scores", "uniform")):
            config = replace(model.config, gumbel_evaluation="on", attention=attention)
            noisy = build_model(config, prepared.vocabulary, len(prepared.classes)).to(self.device)
            state = model.state_dict()
            noisy.load_state_dict({key: state[key] for key in noisy.state_dict()})
            yield name, noisy.eval()

    def _measure(
        self,
        unit: Unit,
        name: str,
        model: AttentionClassifier,
        prepared: PreparedCorpus,
        folder: Path,
    ) -> dict[str, Any]:
        """Measure a model; what makes the measurement impossible is a result, too."""
        from fastattnerase import mi
        from fastattnerase.models import evaluate
        from fastattnerase.sources import ModelSource

        source = ModelSource(model, prepared.test, prepared.classes, {"cell": unit.key})
        run = folder / f"mi-{name}"
        if run.exists():  # of a killed call
            shutil.rmtree(run)
        found: dict[str, Any] = {"accuracy": evaluate(model, prepared.test).accuracy}
        try:
            mi.run(source, self.options.measurement(unit.variant), run, name=f"{unit.key} {name}")
        except mi.MeasurementError as error:
            return found | {"run": None, "reason": str(error)}
        return found | {"run": run.name, "reason": ""}


def f1(decisions: Any, labels: Any) -> float:
    """Give the F1 score of class 1; 0 where nothing is decided or labelled so.

    Example:
        >>> import numpy as np
        >>> f1(np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0]))
        0.5
    """
    hits = int(((decisions == 1) & (labels == 1)).sum())
    total = int((decisions == 1).sum()) + int((labels == 1).sum())
    return 2 * hits / total if total else 0.0


def _jsonable(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
