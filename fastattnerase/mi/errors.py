"""What a measurement of mutual information raises."""

from fastattnerase.runs.rundir import RunError


class MeasurementError(RunError):
    """The instances or the options do not allow the measurement; the message says what to do."""
