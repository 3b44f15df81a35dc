"""Who does a sweep: the options of its engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Engine = Literal["local", "ranks", "ray"]


@dataclass(frozen=True)
class Options:
    """Who does a sweep.

    Attributes:
        engine: How shards are shared out. `local`: this process, or --jobs of them. `ranks`: this
            process is one of many that `torchrun` or `srun` started; shard i is of rank i mod N.
            `ray`: actors of Ray.
        jobs: Processes of the engine local, 1 by default, or at most so many actors of Ray, all
            that it has cores or GPUs for by default.
        cpus_per_worker: Cores of an actor of Ray; with a GPU each has one besides.
        ray_address: Address of a Ray cluster, such as `auto` or `ray://host:10001`; by default Ray
            is started on this machine, without a dashboard, and stopped afterwards.
        retry: Whether shards that are set aside are done again.

    Raises:
        ValueError: a number below 1, or an option of another engine; names it.
    """

    engine: Engine = "local"
    jobs: int | None = None
    cpus_per_worker: int = 1
    ray_address: str | None = None
    retry: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ranks", "ray"):
            raise ValueError(f"engine: given {self.engine!r}, needed local, ranks or ray")
        for name in ("jobs", "cpus_per_worker"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise ValueError(f"{name}: given {given}, needed at least 1")
        if self.engine == "ranks" and self.jobs is not None:
            raise ValueError("jobs: given with the engine ranks, needed local or ray")
        if self.engine != "ray" and self.ray_address is not None:
            raise ValueError(f"ray_address: given with the engine {self.engine}, needed ray")
        if self.engine != "ray" and self.cpus_per_worker != 1:
            raise ValueError(f"cpus_per_worker: given with the engine {self.engine}, needed ray")
