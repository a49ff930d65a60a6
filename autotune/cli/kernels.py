"""`autotune kernels`: tunes the training kernels of a model or of one operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autotune.cli import completion
from autotune.cli.output import with_wide
from autotune.cli.runs import run_path
from autotune.cli.workload import (
    Batch,
    Classes,
    InputShape,
    Layout,
    MicroBatch,
    Optimizer,
    Recompute,
    step_form,
    training_step,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.compiler.target import Space, TargetSpec, TuneRequest
    from autotune.workloads import Task

Precision = Literal["fp32", "fp16"]


@with_wide
def kernels(
    target: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.targets,
            help="Target to tune for; see `autotune targets`. [default: cpu]",
        ),
    ] = None,
    target_json: Annotated[
        Path | None, typer.Option(help="A TVM target as a JSON file, instead of --target.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.models,
            help="Model, see `autotune models`; or a PyTorch module's file.py:factory or package.module:factory.",
        ),
    ] = None,
    op: Annotated[
        str | None, typer.Option(metavar="SPEC", help="One operator instead of a model.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(help="Roles of --op, with commas; all of them if it is not given."),
    ] = None,
    batch: Batch = None,
    classes: Classes = None,
    optimizer: Optimizer = None,
    input_shape: InputShape = None,
    micro_batch: MicroBatch = None,
    recompute: Recompute = None,
    layout: Layout = None,
    trials: Annotated[
        int | None, typer.Option(help="Candidates to measure, over all kernels. [default: 256]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search. [default: 1]")] = None,
    space: Annotated[
        Path | None, typer.Option(help="Search space to use instead of the target's own.")
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="fp16: try kernels that keep operands of products in half precision on their way, and sum in "
            "single; their results are off by up to 2 %. OpenCL targets. [default: fp32]",
        ),
    ] = None,
    storage: Annotated[str | None, typer.Option(hidden=True)] = None,
    tracker: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Measure on the devices of this TVM tracker; `autotune tracker up` starts one.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Key that the tracker has the devices under.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Tune for one cluster's cores: big, little, or its name; hybrid for all cores.",
        ),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.profiles,
            metavar="PROFILE",
            help="Ask the model of a phone instead of a device: meizu-16t, three-cluster, ...",
        ),
    ] = None,
    start_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            parser=run_path("kernels"),
            autocompletion=completion.runs,
            metavar="PATH",
            help="An earlier run, or records, of whatever device: the best schedules of the same kernels are tried "
            "first; may be repeated.",
        ),
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("kernels"),
            autocompletion=completion.runs,
            metavar="DIR",
            help="Begin with what records know, of these kernels, of others like them, and of tiles, on the "
            "same device: a store (`autotune records pull`), a database or a run; may be repeated. [default: none]",
        ),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Folder that the run's folder is made in. [default: logs]")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            parser=run_path("kernels"),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Go on with a run; only --trials may change.",
        ),
    ] = None,
    no_step: Annotated[
        bool,
        typer.Option(
            "--no-step",
            help="Do not run the step at the end; the whole step is then predicted only.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Tunes training kernels with MetaSchedule and reports what was gained over untuned ones.

    Each run has a folder of its own with every measurement; Ctrl-C keeps them, --resume goes on. Where a --model is
    tuned for this machine's processor, its step is run at the end, untuned, tuned and in PyTorch where that is
    installed, and measured beside what was predicted; that takes a minute at most.

    \b
    Examples:
      autotune kernels --target adreno --model lenet --batch 4 --trials 128
      autotune kernels --op conv2d:n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1 --role weight_grad
      autotune kernels --op matmul:m=64,n=4096,k=1024 --target mali --json
      autotune kernels --target adreno --model alexnet --batch 4 --precision fp16
      autotune kernels --target adreno --model lenet --batch 4 --tracker 127.0.0.1:9190 --key adreno640
      autotune kernels --target arm-cpu --model lenet --tracker 127.0.0.1:9190 --key sm8150 --cluster big
      autotune kernels --model squeezenet1_1 --emulate meizu-16t --cluster little --from logs/2026-arm-cpu-big
      autotune kernels --target adreno --model squeezenet1_0 --tracker 127.0.0.1:9190 --key sm8150 --records records
      autotune kernels --resume logs/20260102T030405Z-cpu-lenet
    """
    from dataclasses import asdict, replace

    from autotune.cli.cluster import chosen_cores
    from autotune.cli.fleet import fleet_of, target_on
    from autotune.cli.measured_step import StepToMeasure
    from autotune.cli.trust import allow, check_allowed, outside
    from autotune.cli.tuning import carry_out
    from autotune.compiler.target import TuneRequest, on_cores
    from autotune.errors import UsageError
    from autotune.records import place_of, read_run
    from autotune.workloads import tasks

    of_model = {
        "--batch": batch,
        "--classes": classes,
        "--optimizer": optimizer,
        "--input-shape": input_shape,
        "--micro-batch": micro_batch,
        "--recompute": recompute,
        "--layout": layout,
    }
    if storage is not None:
        raise UsageError(
            "--storage says where a study is kept, and kernels have none",
            hint="--precision fp16 keeps operands in half precision",
        )
    if resume is not None:
        search = (target, target_json, model, op, role, seed, space, precision, tracker, key)
        fixed = (*search, cluster, emulate, start_from, records, logs, *of_model.values())
        if any(value is not None for value in fixed):
            raise UsageError(
                "--resume goes on with the run as it was asked for",
                hint="give only --trials beside it, to raise the budget",
            )
        earlier = read_run(resume)
        check_allowed(resume, outside(earlier.about.get("request", {})))
        request = TuneRequest.of_run(earlier)
        start = tuple(str(place_of(one, resume) or one) for one in request.start_from)
        request = replace(request, start_from=start)
        return carry_out(
            _with_trials(request, trials),
            resume.parent,
            earlier=earlier,
            as_json=json,
            measure=not no_step,
        )
    if (model is None) == (op is None):
        raise UsageError("give either --model or --op", hint="`autotune models` lists the models")
    if emulate is not None and target is None and target_json is None:
        target = "arm-cpu"
    spec = _target(target, target_json)
    cores, fleet = chosen_cores(cluster, emulate, spec, fleet_of(tracker, key))
    if fleet is not None:
        allow(outside({"fleet": asdict(fleet)}))
        spec = target_on(spec, fleet)
    if cores is not None:
        spec = on_cores(spec, len(cores.cpus))
    chosen = _space(spec, space)
    if precision == "fp16":
        chosen = chosen.with_half_storage()
    if model is not None:
        if role is not None:
            raise UsageError("--role goes with --op", hint="a model is tuned in all its roles")
        wanted = training_step(model, batch, classes, optimizer, input_shape)
        form = step_form(wanted.batch, micro_batch, recompute, layout, chosen.layout)
        graph = wanted.graph(form)
        workload, samples, found = graph.name, wanted.batch, tasks(graph)
        to_measure = StepToMeasure(wanted, graph)
    else:
        given = [option for option, value in of_model.items() if value is not None]
        if given:
            raise UsageError(
                f"{' and '.join(given)} {'goes' if len(given) == 1 else 'go'} with --model",
                hint="--op has its own sizes",
            )
        workload, samples, found = str(op).split(":", 1)[0], None, _tasks(str(op), role)
        to_measure = None
    if precision == "fp16":
        _check_products(found, chosen)
    return carry_out(
        TuneRequest(
            target=spec,
            space=chosen,
            workload=workload,
            batch=samples,
            tasks=found,
            trials=_positive("--trials", 256 if trials is None else trials),
            seed=_positive("--seed", 1 if seed is None else seed),
            fleet=fleet,
            cores=cores,
            start_from=tuple(str(one.absolute()) for one in start_from or ()),
            records=tuple(str(one.absolute()) for one in records or ()),
        ),
        Path("logs") if logs is None else logs,
        earlier=None,
        as_json=json,
        step={} if model is None else {"--model": model, **of_model, "--batch": samples},
        to_measure=to_measure,
        measure=not no_step,
    )


def _positive(option: str, value: int) -> int:
    from autotune.errors import UsageError

    if not 1 <= value < 2**31:
        raise UsageError(f"{option} is {value}", hint="give a whole number from 1 to 2147483647")
    return value


def _with_trials(request: TuneRequest, trials: int | None) -> TuneRequest:
    from dataclasses import replace

    return request if trials is None else replace(request, trials=_positive("--trials", trials))


def _target(name: str | None, path: Path | None) -> TargetSpec:
    from autotune.compiler.target import targets
    from autotune.errors import UsageError

    if name is not None and path is not None:
        raise UsageError("--target and --target-json exclude each other", hint="give one of them")
    return targets.from_json(path) if path is not None else targets.find(name or "cpu")


def _space(spec: TargetSpec, path: Path | None) -> Space:
    from autotune.compiler.target import spaces
    from autotune.errors import UsageError

    loaded = spaces.load(path or spec.space_path())
    if loaded.family != spec.family:
        raise UsageError(
            f"search space {path}: key family: {loaded.family} does not fit target {spec.name}",
            hint=f"the target is of family {spec.family}",
        )
    if loaded.formulations:
        _check_formulations(path or spec.space_path(), loaded)
    return loaded


def _check_formulations(path: Path, space: Space) -> None:
    from autotune.compiler.formulations import registered
    from autotune.errors import UsageError

    known = {f"{operator}.{role}": names for (operator, role), names in registered().items()}
    for key, names in space.formulations.items():
        if key not in known:
            raise UsageError(
                f"search space {path}: key formulations.{key}: no such operator and role",
                hint=f"known: {', '.join(known)}",
            )
        for name in names:
            if name not in known[key]:
                raise UsageError(
                    f"search space {path}: key formulations.{key}: no formulation {name!r}",
                    hint=f"known: {', '.join(known[key])}",
                )


def _check_products(tasks: Sequence[Task], space: Space) -> None:
    """Refuses kernels of which none has operands that could be kept in half precision."""
    from autotune.compiler.formulations import formulations
    from autotune.compiler.target import ImplicitGemm
    from autotune.errors import UsageError

    kinds = {rule.kind for rule in space.rules if isinstance(rule, ImplicitGemm)}
    tried = (
        one
        for kernel in (task.kernel for task in tasks)
        for one in formulations(
            kernel, space.formulations.get(f"{kernel.operator.name}.{kernel.role}")
        )
    )
    if not any(one.rule in kinds for one in tried):
        raise UsageError(
            "--precision fp16 would change nothing: none of these kernels is computed as a product",
            hint="leave it out; dense convolutions and matmuls have such kernels",
        )


def _tasks(op: str, role: str | None) -> tuple[Task, ...]:
    from autotune.errors import UsageError
    from autotune.workloads import Task, parse_kernel, parse_operator, parse_roles

    operator = parse_operator(op.partition("+")[0])
    roles = operator.roles() if role is None else parse_roles(role, operator)
    if "+" in op and len(roles) != 1:
        raise UsageError(
            "an operator with an epilogue is tuned in one role", hint="give it with --role"
        )
    return tuple(Task(parse_kernel(op, one), 1, ("--op",)) for one in roles)
