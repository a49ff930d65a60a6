"""Which runs of kernels fit the other options of a command: those for the processor that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Processor:
    """The kind of processor that kernels are compiled for.

    Attributes:
        family: `cpu` or `opencl`.
        triple: LLVM triple of the host code; empty for this machine's, and for GPUs, where it does not matter.
    """

    family: str
    triple: str = ""

    def __str__(self) -> str:
        from autotune.compiler.target import ARM_TRIPLE

        names = {Processor("cpu"): "cpu", Processor("cpu", ARM_TRIPLE): "arm-cpu"}
        return names.get(self, " ".join(filter(None, (self.family, self.triple))))


def processor_of(about: Mapping[str, Any]) -> Processor | None:
    """Returns the processor of a run, from its `run.json`; None if it is not a run of kernels."""
    request = about.get("request")
    target = request.get("target") if isinstance(request, Mapping) else None
    if not isinstance(target, Mapping):
        return None
    family, triple = str(target.get("family")), str(target.get("triple") or "")
    return Processor(family, "" if family == "opencl" else triple)


def processors_for(option: str, options: Mapping[str, Any]) -> tuple[Processor, ...]:
    """Returns the processors whose kernel runs an option can take; empty if it can take any.

    Args:
        option: Python name of the option.
        options: Values of all options of the command, by their Python names.
    """
    if option == "gpu_run":
        return (Processor("opencl"),)
    if option in ("start_from", "records") and "target" in options:
        return (_tuned(options),)
    if option == "runs" and options.get("kind") in ("c", "opencl"):
        return _exported(str(options["kind"]))
    if option == "run" and "device" in options and options.get("plan") is None:
        return _trained(options)
    return ()


def _tuned(options: Mapping[str, Any]) -> Processor:
    """Returns the processor that `autotune kernels` tunes for."""
    from autotune.jobs.requests import KernelsRequest

    names = ("target", "target_json", "emulate")
    target = KernelsRequest(**{name: options[name] for name in names}).target_spec()
    return Processor(target.family, "" if target.family == "opencl" else target.triple)


def _exported(kind: str) -> tuple[Processor, ...]:
    from autotune.compiler.target import ARM_TRIPLE

    if kind == "opencl":
        return (Processor("opencl"),)
    return Processor("cpu"), Processor("cpu", ARM_TRIPLE)


def _trained(options: Mapping[str, Any]) -> tuple[Processor, ...]:
    """Returns the processor that a step is run on. Phones and boards are taken for 64-bit ARM, as most are."""
    from autotune.compiler.target import ARM_TRIPLE

    away = options.get("emulate") is not None or options.get("ssh")
    there = away or options.get("device") not in (None, "local")
    return (Processor("cpu", ARM_TRIPLE if there else ""),)


__all__ = ["Processor", "processor_of", "processors_for"]
