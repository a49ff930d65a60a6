"""`autotune kernels`: tunes the training kernels of a model or of one operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from autotune.cli.commands.records import holds_records
from autotune.cli.options import (
    Batch,
    Classes,
    InputShape,
    Layout,
    Lora,
    MicroBatch,
    Optimizer,
    Recompute,
    Seq,
    Train,
    completion,
    run_path,
)
from autotune.cli.shared import with_wide

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
            help="Model, see `autotune models`; a PyTorch module's file.py:factory or package.module:factory; or "
            "hf:NAME or hf:FOLDER, see docs/transformers.md.",
        ),
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.operators,
            metavar="SPEC",
            help="One operator instead of a model: conv2d, conv1d, conv2d_transpose, conv1d_transpose, matmul, "
            "bmm or expr; or your own kernel: file.py:function, see docs/own-kernels.md.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.roles,
            help="Roles of --op, separated by commas: forward, data_grad, weight_grad or update. "
            "[default: all; of expr: forward]",
        ),
    ] = None,
    batch: Batch = None,
    classes: Classes = None,
    optimizer: Optimizer = None,
    input_shape: InputShape = None,
    seq: Seq = None,
    lora: Lora = None,
    train: Train = None,
    micro_batch: MicroBatch = None,
    recompute: Recompute = None,
    layout: Layout = None,
    trials: Annotated[
        int | None,
        typer.Option(
            help="Candidates to measure, over all kernels. [default: 256, or 4 per kernel if that is more]"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search. [default: 1]")] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            autocompletion=completion.space_files,
            help="Search space (a TOML file) to use instead of the target's own.",
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="fp16: also try kernels that load operands in half precision and accumulate in "
            "single precision. Results may be off by up to 2 %. OpenCL targets only. [default: fp32]",
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
    key: Annotated[str | None, typer.Option(help="Key of the devices on the tracker.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.clusters,
            metavar="NAME",
            help="Tune for the cores of the cluster with this name, such as big or little; hybrid: for all cores.",
        ),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.profiles,
            metavar="PROFILE",
            help="Use the model of a phone instead of a device: meizu-16t, three-cluster, ...",
        ),
    ] = None,
    start_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            parser=run_path("kernels", check=holds_records),
            autocompletion=completion.runs,
            metavar="PATH",
            help="An earlier run, or records, of any device: its best schedules of the same kernels are tried "
            "first; may be repeated.",
        ),
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="DIR",
            help="Start from records of the same device: a store (`autotune records pull`), a "
            "database or a run; may be repeated. [default: none]",
        ),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Folder that the run's folder is made in. [default: logs]")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            parser=run_path("kernels", ended=False),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Resume a run. Only --trials may change.",
        ),
    ] = None,
    no_step: Annotated[
        bool,
        typer.Option(
            "--no-step",
            help="Do not run the step at the end: its time is then only predicted. --resume runs it later.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Tunes training kernels with MetaSchedule, and reports the speed-up over untuned ones.

    Every measurement is kept in the run's folder. Ctrl-C keeps what was measured, and --resume continues.
    If a --model is tuned for this machine's processor, its step is measured at the end: untuned, tuned, and
    in PyTorch if that is installed. Apart from compiling, this takes at most a minute.

    \b
    Examples:
      autotune kernels --target adreno --model lenet --batch 4 --trials 128
      autotune kernels --op conv2d:n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1 --role weight_grad
      autotune kernels --op matmul:m=64,n=4096,k=1024 --target mali --json
      autotune kernels --op my_kernels.py:scaled_product --trials 64
      autotune kernels --model hf:distilbert --seq 128 --batch 4 --lora 8
      autotune kernels --target adreno --model alexnet --batch 4 --precision fp16
      autotune kernels --target adreno --model lenet --batch 4 --tracker 127.0.0.1:9190 --key adreno640
      autotune kernels --target arm-cpu --model lenet --tracker 127.0.0.1:9190 --key sm8150 --cluster big
      autotune kernels --model squeezenet1_1 --emulate meizu-16t --cluster little --from logs/2026-arm-cpu-big
      autotune kernels --target adreno --model squeezenet1_0 --tracker 127.0.0.1:9190 --key sm8150 --records records
      autotune kernels --resume logs/20260102T030405Z-cpu-lenet
    """
    from autotune.cli.commands.kernels_table import show, show_step, write_next_of
    from autotune.cli.shared import write_json
    from autotune.errors import INTERRUPTED, UsageError
    from autotune.jobs.kernels import measure_step, resumed_request, tune
    from autotune.jobs.requests import KernelsRequest, StepRequest, requested_step

    if storage is not None:
        raise UsageError(
            "--storage says where a study is kept, and kernels have none",
            hint="--precision fp16 keeps operands in half precision",
        )
    of_model = {
        "--batch": batch, "--classes": classes, "--optimizer": optimizer, "--input-shape": input_shape,
        "--micro-batch": micro_batch, "--recompute": recompute, "--layout": layout, "--train": train, "--seq": seq,
        "--lora": lora,
    }  # fmt: skip
    given = [option for option, value in of_model.items() if value is not None]
    if given and resume is None and model is None and op is not None:
        raise UsageError(
            f"{' and '.join(given)} {'goes' if len(given) == 1 else 'go'} with --model",
            hint="--op has its own sizes",
        )
    step = StepRequest(
        model or "", batch, classes, optimizer, input_shape, micro_batch=micro_batch, recompute=recompute,
        layout=layout, train=tuple(train or ()),
    )  # fmt: skip
    request = KernelsRequest(
        step=None if model is None else requested_step(step, seq, lora),
        op=op, role=role, target=target, target_json=target_json, trials=trials, seed=seed,
        space=space, precision=precision, tracker=tracker, key=key, cluster=cluster,
        emulate=emulate, start_from=tuple(start_from or ()), records=tuple(records or ()),
    )  # fmt: skip
    earlier = None
    if resume is None:
        wanted = request.resolved()
    else:
        if request != KernelsRequest(trials=trials) or given or logs is not None:
            raise UsageError(
                "--resume continues the run with its original options",
                hint="give only --trials with it, to raise the budget",
            )
        wanted, earlier = resumed_request(resume, trials)
        logs = resume.parent
    done = tune(wanted.tuned, logs or Path("logs"), earlier, wanted.step)
    if not json:
        show(done.result, done.notice)
    content, interrupted = done.content, False
    if wanted.tuned.batch is not None:
        outcome = measure_step(wanted, done, wanted=not no_step)
        content, interrupted = outcome.content, outcome.interrupted
        show_step(outcome, as_json=json, wanted=not no_step)
    if json:
        write_json(content)
    write_next_of(wanted, done)
    return INTERRUPTED if interrupted else 0
