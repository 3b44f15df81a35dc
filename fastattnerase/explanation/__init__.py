"""Texts explained: what a model attends to, and what erasing it does to the decision."""

from fastattnerase.explanation.course import Course
from fastattnerase.explanation.function import explain
from fastattnerase.explanation.records import Explanation, Flip, SmallestSet, TextExplanation

__all__ = ["Course", "Explanation", "Flip", "SmallestSet", "TextExplanation", "explain"]
