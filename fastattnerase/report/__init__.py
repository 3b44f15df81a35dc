"""Reports on finished experiments: one HTML page, figures and tables as files."""

from fastattnerase.report.html import build

__all__ = ["build"]
