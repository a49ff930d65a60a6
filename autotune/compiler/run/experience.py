"""Finds what records know about a run's kernels: the same kernels, and similar ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from autotune.errors import UsageError
from autotune.records import Database, Schedule, SearchedTask
from autotune.workloads import parse_kernel
from autotune.workloads.operators import Kernel, Operator

_NEAREST = 3
# Knowledge of other sizes is worth this share of the kernel's own trials.
_WORTH_OF_SIMILAR = 0.5


@dataclass(frozen=True)
class KnownKernel:
    """A kernel in the records.

    Attributes:
        kernel: The kernel.
        searched: Its result in each run.
        schedules: Its schedules, fastest first.
    """

    kernel: Kernel
    searched: tuple[SearchedTask, ...]
    schedules: tuple[Schedule, ...]

    @property
    def best_s(self) -> float:
        """The shortest known time in seconds."""
        return self.schedules[0].best_s

    @property
    def default_s(self) -> float | None:
        """Seconds of the untuned default; None if it failed."""
        times = [one.default_s for one in self.searched if one.default_s is not None]
        return min(times, default=None)

    @property
    def default_is_best(self) -> bool:
        """Whether no schedule was faster than the untuned default."""
        return self.default_s is not None and self.default_s <= self.best_s

    @property
    def formulations(self) -> list[str]:
        """Formulations that were tried, sorted by name."""
        return sorted({one.formulation for one in self.schedules})

    def of(self, formulation: str) -> list[Schedule]:
        """Returns its schedules in one formulation, fastest first."""
        return [one for one in self.schedules if one.formulation == formulation]


@dataclass(frozen=True)
class Experience:
    """Knowledge about a kernel that is to be tuned.

    Attributes:
        equal: Whether the kernel itself is known.
        known: Only this kernel, or the most similar known kernels, nearest first.
    """

    equal: bool
    known: tuple[KnownKernel, ...]

    def known_kernel(self, formulation: str) -> KnownKernel | None:
        """Returns the nearest known kernel that was tried in a formulation; None if there is none."""
        return next((one for one in self.known if one.of(formulation)), None)

    def trials(self, formulation: str) -> int:
        """Returns how many of the kernel's own trials in a formulation this knowledge is worth."""
        known_kernel = self.known_kernel(formulation)
        if known_kernel is None:
            return 0
        count = len(known_kernel.of(formulation))
        return count if self.equal else math.ceil(count * _WORTH_OF_SIMILAR)

    def expected(self, formulation: str) -> float | None:
        """Returns a formulation's time relative to the best formulation's; None if it was never tried."""
        known_kernel = self.known_kernel(formulation)
        return (
            None
            if known_kernel is None
            else known_kernel.of(formulation)[0].best_s / known_kernel.best_s
        )

    def formulations(self) -> list[str]:
        """Returns the known formulations, fastest first."""
        names = {name for known in self.known for name in known.formulations}
        return sorted(names, key=lambda name: (self.expected(name) or math.inf, name))


@dataclass(frozen=True)
class Experiences:
    """Knowledge from records for a run.

    Attributes:
        of: Knowledge about the run's kernels, by name. Kernels without any are absent.
        known: All known kernels, by name.
    """

    of: Mapping[str, Experience]
    known: Mapping[str, KnownKernel]


def experiences(kernels: Sequence[Kernel], database: Database) -> Experiences:
    """Returns what a database knows for a run.

    Args:
        kernels: The kernels to be tuned.
        database: Records of the same device, cores, driver, TVM and target.
    """
    known: dict[str, KnownKernel] = {}
    for name, schedules in database.tasks().items():
        searched = tuple(database.searched(name))
        if not searched:
            continue
        try:
            kernel = parse_kernel(searched[0].spec, searched[0].role)
        except UsageError:  # From a newer version, with kernels unknown here.
            continue
        known[name] = KnownKernel(kernel, searched, tuple(schedules))
    kinds: dict[object, list[KnownKernel]] = {}
    for one in known.values():
        kinds.setdefault(_kind(one.kernel), []).append(one)
    found = {}
    for kernel in kernels:
        if kernel.name in known:
            found[kernel.name] = Experience(True, (known[kernel.name],))
        elif alike := kinds.get(_kind(kernel)):
            sizes = _sizes(kernel.operator)
            near = sorted(alike, key=lambda one: _distance(sizes, _sizes(one.kernel.operator)))
            found[kernel.name] = Experience(False, tuple(near[:_NEAREST]))
    return Experiences(found, known)


def _kind(kernel: Kernel) -> object:
    """Returns a key that is equal for kernels that differ only in sizes: operator, role, flags and epilogue."""
    operator = kernel.operator
    flags = tuple(getattr(operator, f.name) for f in fields(operator) if f.type == "bool")
    grouped = getattr(operator, "groups", 1) > 1
    followers = tuple(_kind(follower) for follower in kernel.epilogue)
    return type(operator).__name__, kernel.role, flags, grouped, followers


def _sizes(operator: Operator) -> tuple[int, ...]:
    return tuple(_numbers(operator))


def _numbers(operator: Operator) -> Iterator[int]:
    for one in fields(operator):
        value = getattr(operator, one.name)
        if isinstance(value, tuple):
            yield from value
        elif isinstance(value, int) and not isinstance(value, bool):
            yield value


def _distance(a: Sequence[int], b: Sequence[int]) -> float:
    return sum(abs(math.log((x + 1) / (y + 1))) for x, y in zip(a, b, strict=True))
