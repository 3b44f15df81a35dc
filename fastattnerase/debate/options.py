"""How both sides of the debate are asked."""

from __future__ import annotations

from dataclasses import dataclass

from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.checks import check_counts
from fastattnerase.studies.wiegreffe_pinter import options as tests

TEXTS = "texts"  # the name of the user's text, where studies have data sets


@dataclass(frozen=True)
class Options(tests.Options):
    """The models that are trained on a text, and the sizes of the tests.

    Attributes:
        encoder: Encoder of the model that is asked about: bilstm, cnn or mlp.
        attention: Its attention: additive, deep or dot.
        base_seed: Seed of the model that is asked about: of initial parameters and of batches.
        seeds: Seeds of the further models that its attention is compared with.
        strengths: Weights λ of the adversaries that imitate its outputs with other attention; the
            largest lends its weights to an MLP.
        embedding_size: Width of the word embeddings where no word vectors are given.
        hidden_size: Units of the MLP, and of each direction of the BiLSTM.
        epochs: Epochs of every model other than the adversaries.
        adversary_epochs: Largest number of epochs of an adversary.
        permutations: Permutations of the weights of each test document.
        loo_instances: Largest number of test documents whose words are left out one by one.
        adversary_instances: Largest number of test documents for which adversarial attention is
            sought one by one.

    Raises:
        RunError: a name that is not known, or a number out of range.

    Example:
        >>> Options().strengths
        (0.001, 0.01, 0.1)
    """

    datasets: tuple[str, ...] = (TEXTS,)
    tested: tuple[str, ...] | None = (TEXTS,)
    encoder: str = "bilstm"
    attention: str = "additive"
    base_seed: int = 0
    seeds: tuple[int, ...] = (1, 2, 3)
    strengths: tuple[float, ...] = (1e-3, 1e-2, 1e-1)
    curve: tuple[float, ...] = ()
    embedding_size: int = 100
    hidden_size: int = 64
    adversary_epochs: int = 20
    permutations: int = 100
    loo_instances: int = 200
    adversary_instances: int | None = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "permutations", "loo_instances")
        for name in ("seeds", "strengths"):
            if not getattr(self, name):
                raise RunError(f"{name}: given none, needed one or more")

    def _check_names(self) -> None:
        for name, known in (("encoder", tests.ENCODERS), ("attention", tests.ATTENTIONS)):
            if getattr(self, name) not in known:
                raise RunError(
                    f"{name}: given {getattr(self, name)!r}, needed one of {', '.join(known)}"
                )
