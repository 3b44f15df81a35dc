"""The public names of `fastattnerase.mi`, which that package imports when one is used."""

from fastattnerase.mi.clusters import Codebook, Quantised, quantise
from fastattnerase.mi.config import Config
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.mi.grouping import RankedStates, group
from fastattnerase.mi.measurement import Measurement, measure
from fastattnerase.mi.nulls import repeat_measurement
from fastattnerase.mi.ranks import RankChoice, choose_ranks
from fastattnerase.mi.runs import Result, export, load, run
from fastattnerase.statistics.correlation import Correlation, kendall_tau, weighted_tau
from fastattnerase.statistics.information import (
    Information,
    entropy,
    mutual_information,
    shuffled_information,
)

__all__ = [
    "Codebook",
    "Config",
    "Correlation",
    "Information",
    "Measurement",
    "MeasurementError",
    "Quantised",
    "RankChoice",
    "RankedStates",
    "Result",
    "choose_ranks",
    "entropy",
    "export",
    "group",
    "kendall_tau",
    "load",
    "measure",
    "mutual_information",
    "quantise",
    "repeat_measurement",
    "run",
    "shuffled_information",
    "weighted_tau",
]
