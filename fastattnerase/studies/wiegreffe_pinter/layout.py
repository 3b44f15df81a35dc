"""How tables stand on the page: which columns, under which heads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """A table on the page.

    Attributes:
        name: Of its file.
        title: Above it.
        columns: From a column to its head; others are in the file alone.
        note: Below it.
        exact: Columns of numbers that are written with all their digits.
    """

    name: str
    title: str
    columns: dict[str, str]
    note: str = ""
    exact: tuple[str, ...] = ()


_WHICH = {"dataset": "Data set", "encoder": "Encoder", "attention": "Attention"}

LAYOUTS = (
    Layout(
        "table_2",
        "Table 2: learned against uniform attention",
        _WHICH
        | {
            "jain_wallace_f1": "F1, Jain & Wallace",
            "paper_base_f1": "F1, paper",
            "base_f1": "F1, here",
            "paper_uniform_f1": "F1 uniform, paper",
            "uniform_f1": "F1 uniform, here",
            "base_accuracy": "Accuracy",
            "uniform_accuracy": "Accuracy uniform",
            "majority": "Most frequent class",
            "base_alone_right": "Right: learned alone",
            "uniform_alone_right": "Right: uniform alone",
            "p_mcnemar": "McNemar’s p",
        },
        "F1 is that of class 1, and undefined with more than two classes.",
        exact=("p_mcnemar",),
    ),
    Layout(
        "seeds",
        "Figure 3 in numbers: attention of other seeds",
        _WHICH
        | {
            "seeds": "Seeds",
            "largest_weight": "Largest weight of the base model",
            "decision": "Decision",
            "documents": "Documents",
            "jsd_quarter": "JSD, first quartile",
            "jsd_median": "JSD, median",
            "jsd_three_quarters": "JSD, third quartile",
            "output_difference": "Output difference",
        },
        "The JSD of a document is the median over the seeds, its output difference the mean of "
        "|p − p'|.",
    ),
    Layout(
        "table_3",
        "Table 3: F1 of an MLP under the attention of others",
        _WHICH
        | {
            "paper_uniform_f1": "Uniform, paper",
            "uniform_f1": "Uniform, here",
            "paper_learned_f1": "Its own, paper",
            "learned_f1": "Its own, here",
            "paper_base_f1": "Base model’s, paper",
            "base_f1": "Base model’s, here",
            "paper_adversary_f1": "Adversary’s, paper",
            "adversary_f1": "Adversary’s, here",
            "lender_strength": "λ of the adversary",
            "lender_jsd": "Its JSD",
        },
        "The weights of each document are given in training and test alike.",
        exact=("lender_strength",),
    ),
    Layout(
        "table_4",
        "Table 4: trained adversaries",
        _WHICH
        | {
            "strength": "λ",
            "max_epochs": "Epochs, at most",
            "paper_f1": "F1, paper",
            "f1": "F1, here",
            "base_f1": "F1, base",
            "paper_tvd": "TVD halved, paper",
            "tvd_halved": "TVD halved, here",
            "tvd": "TVD",
            "paper_jsd": "JSD, paper",
            "jsd": "JSD, here",
            "train_tvd": "TVD on train",
        },
        "Means over the test documents; TVD is |p − p'|, of which the published code reports half.",
        exact=("strength",),
    ),
    Layout(
        "curve",
        "λ and the divergence of attention",
        _WHICH
        | {
            "max_epochs": "Epochs, at most",
            "values": "Values of λ",
            "least_strength": "from",
            "largest_strength": "to",
            "least_jsd": "Least JSD",
            "largest_jsd": "Largest JSD",
            "spearman": "Spearman",
            "kendall": "Kendall",
        },
        exact=("least_strength", "largest_strength"),
    ),
    Layout(
        "sought",
        "Jain and Wallace’s adversaries, sought document by document",
        _WHICH
        | {
            "documents": "Documents",
            "jsd_mean": "JSD, mean",
            "jsd_median": "JSD, median",
            "tvd": "TVD, mean",
            "none": "None but its own attention",
        },
        "The most different of five whose output moves by .05 at most, by their published code’s "
        "search.",
    ),
    Layout(
        "table_1",
        "Table 1: data",
        {
            "title": "Data set",
            "classes": "Classes",
            "train": "Train, by class",
            "dev": "Dev",
            "test": "Test",
            "words": "Words",
            "mean_length": "Mean length",
            "left_out": "Left out",
            "note": "Note",
        },
    ),
)
