"""Fuzz test of valid records that are changed at random.

The mutants are read as `--records`, `--from`, `resume` and `export` read records, and by the functions of the
commands `records list`, `show`, `diff`, `merge` and `pull`, `runs` and `trust`. Each must give a valid schedule or
be refused in one line, and nothing printed may control a terminal. A child process reads them under strace, which
shows every process that it starts, file that it writes and connection that it opens. A mutant that kills the child
or takes too long also counts as a fault.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from common.bars import Report, positive, run

from autotune.errors import AutotuneError, UsageError, printable

COUNT, QUICK_COUNT = 10_000, 150
SAMPLES = Path(__file__).parents[1] / "logs" / "samples"
DATABASES = ("cpu-steps/intel-r--xeon-r--processor-383bb511", "opencl-gpu/nvidia-h200-dafe1a69")
_SLOW_S = 60.0
_BEGIN = "fuzzing-begins-here"
_FIRST = 40
"""Mutants that are read unobserved, so that everything has been imported."""
_EACH = 80  # number of schedules of each database to mutate

SEARCH = {
    "schema_version": 1,
    "request": {
        "objective": "latency", "joint": False, "command": None, "storage": None, "ssh": [], "trials": 3,
        "step": {"model": "lenet", "batch": 4, "runs": ["/a"], "gpu_runs": [], "train": ["*"], "optimizer": "sgd"},
    },
    "command": "autotune cpu-config --model lenet",
    "versions": {"autotune": "0.1.0", "numpy": "2.4.6"},
    "device": {"serial": "a", "name": "a phone", "model": "a phone", "emulated": "", "details": {"cores": 8}},
    "git": "",
}  # fmt: skip
CODE = "define void @attack() { ret void }"
NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 1 << 31, 1 << 63, 1 << 70, -(1 << 40), 0.5, 1e99, -0.0, "", "None", "b0",
    "l1", "v2", "b99999", "main", "root", "local", "global", "warp", '"SSRSRS"', CODE, json.dumps(CODE), "../../x",
    "/etc/passwd", "\x1b[2J", "\ud800", "é" * 50, [], {}, [[]], [0], [1, 2], [[1, 2], [0.5, 0.5]], {"a": 1},
)  # fmt: skip
FOREIGN: tuple[list[Any], ...] = (
    ["Annotate", ["l1", json.dumps(CODE)], ["pragma_import_llvm"], []],
    ["Annotate", ["b0", json.dumps("int x;")], ["pragma_import_c"], []],
    ["Annotate", ["b0", '"wmma_sync"'], ["meta_schedule.auto_tensorize"], []],
    ["Annotate", ["b0", {"a": '"1"'}], ["pragma_loop_partition_hint"], []],
    ["Tensorize", ["l1"], ["dot_4x4_i8i8s32_sdot", True], []],
    ["Tensorize", ["b0"], ["tirx.intrin", False], []],
    ["TransformLayout", ["b0"], [0, 1, '{"root_index":0,"nodes":[]}', None, True], []],
    ["TransformBlockLayout", ["b0"], ['{"root_index":0,"nodes":[]}'], []],
    ["Blockize", ["l1"], [True], ["b900"]],
    ["BlockizeInfo", [], [], []],
    ["SetAxisSeparator", ["b0"], [0, 0, [1]], []],
    ["UnsafeSetDType", ["b0"], [0, "float16"], []],
    ["UnsafeHideBufferAccess", ["b0"], ["read", [0]], []],
    ["AnnotateBufferAccess", ["b0"], [0, "read", "lambda"], []],
    ["RollingBuffer", ["b0"], [0], []],
    ["DecomposePadding", ["b0", "l1"], [], ["b901"]],
    ["PadEinsum", ["b0"], [[16, 16]], []],
    ["CacheInplace", ["b0"], [0, "local"], ["b902"]],
    ["CacheIndex", ["b0"], ["global", 1], ["b903"]],
    ["ReIndex", ["b0"], [0, True], ["b904"]],
    ["ReorderBlockIterVar", ["b0", [1, 0]], [], []],
    ["SamplePartitionedTile", ["l1"], [2, 1, 1], ["v905", "v906"]],
    ["LoopPartition", ["l1", 4, 4], [True], ["l907", "l908"]],
    ["Merge", ["l1", "l2"], [], ["l909"]],
    ["GetOutputBlocks", ["b0"], [], ["b910"]],
    ["GetConsumers", ["b0"], [], ["b911"]],
    ["SampleCategorical", [], [[0, -3, 7], [0.2, 0.3, 0.5]], ["v912"]],
    ["Unroll", ["l1"], [], []],
    ["Vectorize", ["l1"], [], []],
    ["Bind", ["l1"], ["threadIdx.x"], []],
    ["SetScope", ["b0"], [0, "shared"], []],
    ["StorageAlign", ["b0"], [0, -1, 1024, 1023], []],
    ["ComputeInline", ["b0"], [], []],
    ["EnterPostproc", [], [], []],
)  # fmt: skip


def inner_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the places of all parts of JSON data, as keys from the outside to the inside."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from inner_places(value[key], (*path, key))


def part(value: Any, path: Sequence[Any]) -> Any:
    """Returns the part of JSON data at a place."""
    for key in path:
        value = value[key]
    return value


def changed_data(value: Any, draw: random.Random, below: Sequence[str] = ()) -> None:
    """Changes one part of JSON data: replaces, deletes or duplicates it, or swaps it with another.

    Args:
        value: The data.
        draw: Draws the part and the change.
        below: Keys of the data that the part is in or is; empty for any part.
    """
    places = [path for path in inner_places(value) if not below or path[0] in below]
    if not places:
        return
    *front, last = draw.choice(places)
    parent = part(value, front)
    kind = draw.randrange(5)
    if kind == 0 and isinstance(parent, list):
        parent.insert(last, copy.deepcopy(parent[last]))
    elif kind == 1:
        del parent[last]
    elif kind == 2 and isinstance(parent, list) and len(parent) > 1:
        other = draw.randrange(len(parent))
        parent[last], parent[other] = parent[other], parent[last]
    elif kind == 3 and type(parent[last]) in (int, float):
        parent[last] += draw.choice((-1, 1, 2, -parent[last], 1 << 33))
    else:
        parent[last] = copy.deepcopy(draw.choice(NASTY))


def changed_trace(trace: Any, draw: random.Random) -> None:
    """Changes a trace as an attacker or a bug might: foreign instructions, other loops, numbers and decisions."""
    instructions, decisions = trace
    kind = draw.randrange(6)
    if kind == 0:
        at = draw.randrange(len(instructions) + 1)
        instructions.insert(at, copy.deepcopy(draw.choice(FOREIGN)))
        for one in decisions:
            one[0] += one[0] >= at
        if instructions[at][0] == "SampleCategorical":
            decisions.append([at, draw.randrange(3)])
    elif kind == 1 and decisions:
        decision = draw.choice(decisions)
        sampled = instructions[decision[0]]
        if sampled[0] == "SampleCategorical":
            decision[1] = draw.randrange(len(sampled[2][0]))
        else:
            changed_data(decision, draw)
    elif kind == 2:
        names = sorted({name for one in instructions for name in one[3] if isinstance(name, str)})
        one = draw.choice(instructions)
        if one[1] and names:
            one[1][draw.randrange(len(one[1]))] = draw.choice(names)
    elif kind == 3:
        first, second = draw.randrange(len(instructions)), draw.randrange(len(instructions))
        instructions[first], instructions[second] = instructions[second], instructions[first]
    else:
        changed_data(trace, draw)


def changed_bytes(data: bytes, draw: random.Random) -> bytes:
    """Replaces, deletes or inserts some bytes."""
    at = draw.randrange(len(data))
    length = draw.choice((1, 1, 2, 16, 500))
    kind = draw.randrange(3)
    middle = draw.randbytes(length) if kind else b""
    return data[:at] + middle + data[at + (0 if kind == 2 else length) :]


class Mutants:
    """Mutates records and reads them.

    Args:
        folder: Folder for the mutated files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sources: list[dict[str, Any]] = []
        self._specs: list[dict[str, tuple[str, str]]] = []
        self._schedules: list[tuple[int, dict[str, Any]]] = []
        for number, name in enumerate(DATABASES):
            lines = gzip.decompress((SAMPLES / f"{name}.records.gz").read_bytes()).splitlines()
            read = [json.loads(line) for line in lines[1:40]]
            source = next(one for one in read if "source" in one)["source"]
            tasks = source["tasks"]
            self._specs.append({k: (t["spec"], t["role"]) for k, t in tasks.items()})
            self._sources.append(source)
            draw = random.Random(number)
            own = [line for line in lines if line.startswith(b'{"schedule"')]
            for line in draw.sample(own, len(own)):
                schedule = json.loads(line)["schedule"]
                if schedule["task"] in self._specs[number]:
                    self._schedules.append((number, schedule))
                if len(self._schedules) == (number + 1) * _EACH:
                    break

    def read(self, seed: int) -> str:
        """Makes a mutant and reads it.

        Returns:
            The outcome: `same`, `other program` or `refused`; any other value is a fault.
        """
        draw = random.Random(seed)
        number, schedule = draw.choice(self._schedules)
        schedule = copy.deepcopy(schedule)
        source = dict(self._sources[number])
        names = [schedule["task"], next(iter(source["tasks"]))]
        source |= copy.deepcopy({
            "about": source["about"], "identity": source["identity"],
            "tasks": {name: source["tasks"][name] for name in names},
        })  # fmt: skip
        schedule["seconds"] = {source["id"]: 1e-3}
        head: dict[str, Any] = {"kind": "autotune records", "schema_version": 1}
        lines = [head, {"source": source}, {"schedule": schedule}]
        kinds = {
            "trace": 55,
            "fields": 10,
            "about": 10,
            "task": 5,
            "text": 5,
            "packed": 3,
            "run": 8,
            "search": 4,
        }
        kind = draw.choices(list(kinds), list(kinds.values()))[0]
        if kind in ("run", "search"):
            return self._of_run(draw) if kind == "run" else self._of_search(draw)
        for _ in range(draw.choice((1, 1, 2, 4))):
            if kind == "trace":
                # An earlier change may have removed the part.
                with suppress(TypeError, IndexError, KeyError, ValueError, AttributeError):
                    changed_trace(schedule["trace"], draw)
            elif kind == "fields":
                trace, schedule["trace"] = schedule.get("trace"), None
                changed_data(lines, draw)
                if schedule.get("trace", 0) is None:
                    schedule["trace"] = trace
            elif kind == "about":
                changed_data(source, draw, ("about", "identity", "cores"))
            elif kind == "task":
                changed_data(draw.choice((source, schedule)), draw, ("tasks", "task"))
        text = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
        if kind == "text":
            text = changed_bytes(text, draw)
        packed = gzip.compress(text, 1)
        if kind == "packed":
            packed = changed_bytes(packed, draw)
        path = self._folder / "database" / "mutant.records.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(packed)
        return judged(lambda: self._by_commands(path, path) or self._database(path))

    def _by_commands(self, path: Path, other: Path) -> str:
        """Reads records as the commands do that show and join them; returns a fault, or nothing."""
        from autotune.cli.commands import records, runs, trust

        out = self._folder / "out"
        for file in out.glob("*/*"):  # By whole paths, which the observer knows.
            file.unlink()
        reported = io.StringIO()
        with redirect_stdout(reported), redirect_stderr(reported):
            records.show(path)
            records.show(path, json=True)
            records.list_databases(path.parent)
            records.diff(path, other)
            records.merge([path, other], out / "merged", mixed=True, best=2)
            records.pull(path, out / "store")
            if path.is_dir():
                runs.runs(path.parent)
                trust.trust(path)
        text = reported.getvalue()
        return "" if text == printable(text) else f"it controls the terminal: {text[:300]!r}"

    def _of_search(self, draw: random.Random) -> str:
        from autotune.cli.commands import runs, trust
        from autotune.jobs.requests import SearchRequest
        from autotune.records import read_run

        path = self._folder / "searches" / "run"
        path.mkdir(parents=True, exist_ok=True)
        about = copy.deepcopy(SEARCH)
        changed_data(about, draw)
        (path / "run.json").write_text(json.dumps(about))

        def read() -> str:
            reported = io.StringIO()
            with redirect_stdout(reported), redirect_stderr(reported):
                runs.runs(path.parent)
                trust.trust(path)
                SearchRequest.of_run(read_run(path))
            text = reported.getvalue()
            return "same" if text == printable(text) else f"it controls the terminal: {text!r:.300}"

        return judged(read)

    def _database(self, path: Path) -> str:
        import tvm
        from tvm.s_tir import Schedule

        from autotune.compiler.formulations import formulations, prim_func
        from autotune.compiler.programs.candidate import digest_of
        from autotune.compiler.programs.scheduled import replayed
        from autotune.compiler.programs.trace_replay import replay_trace
        from autotune.records.database_file import read_database
        from autotune.workloads.spec import parse_kernel

        database = read_database(path)
        specs = {name: spec for own in self._specs for name, spec in own.items()}
        for one in database.schedules.values():
            if one.task not in specs:
                raise UsageError("no kernel of the run's")
            kernel = parse_kernel(*specs[one.task])
            (form,) = formulations(kernel, [one.formulation])
            again = Schedule(tvm.IRModule({"main": prim_func(kernel, form)}))
            try:
                replay_trace(again, one.trace)
            except AutotuneError:
                raise
            except (
                Exception
            ) as error:  # TVM's own, which callers take for a schedule that does not fit.
                raise UsageError("it does not fit: " + type(error).__name__) from error
            if digest_of(kernel, one.formulation, again.mod) != one.digest:
                return "other program"
            replayed(kernel, one.formulation, one.trace, one.digest)
        return "same"

    def _of_run(self, draw: random.Random) -> str:
        from autotune.compiler.programs.scheduled import pooled, winners
        from autotune.compiler.run.run_records import database_of_run
        from autotune.compiler.target.request import TuneRequest
        from autotune.records import read_run

        path = self._folder / "runs" / "run"
        shutil.copytree(SAMPLES / "cpu-matmul", path, dirs_exist_ok=True)
        file = path / draw.choice(("events.jsonl", "events.jsonl", "run.json", "result.json"))
        text = file.read_bytes()
        if draw.random() < 0.3:
            file.write_bytes(changed_bytes(text, draw))
        else:
            values = (
                [json.loads(line) for line in text.splitlines()]
                if file.suffix == ".jsonl"
                else [json.loads(text)]
            )
            chosen = draw.choice(values)
            if draw.random() < 0.4 and "trace" in chosen:
                changed_trace(chosen["trace"], draw)
            else:
                changed_data(chosen, draw)
            file.write_text("\n".join(map(json.dumps, values)) + "\n")

        def read() -> str:
            run = read_run(path)
            request = TuneRequest.of_run(run)
            kernels = {task.kernel.name: task.kernel for task in request.tasks}
            database_of_run(run)
            if fault := self._by_commands(path, SAMPLES / "cpu-matmul"):
                return fault
            pooled(run)
            for name, winner in winners(run).items():
                if name in kernels and winner.tuned:
                    winner.program(kernels[name], None)
            return "same"

        return judged(read)


def judged(read: Callable[[], str]) -> str:
    """Returns the outcome of reading a mutant."""
    try:
        return read()
    except AutotuneError as error:
        text = str(error)
        if len(text.splitlines()) != 1 or not text.isprintable() or len(text) > 1500:
            return f"refused in a way that no terminal should show: {text[:300]!r}"
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


def child(folder: Path, first: int, last: int) -> None:
    """Reads mutants and writes their outcomes to a file; strace observes the process."""
    from autotune.compiler import formulations  # noqa: F401  # What is imported is no work of a mutant.

    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # Where `trust` writes.
    mutants = Mutants(folder)
    for seed in range(first, first + _FIRST):
        mutants.read(seed)
    (folder / _BEGIN).touch()
    with (folder / f"outcomes-{first}").open("w", encoding="utf-8", buffering=1) as file:
        for seed in range(first, last):
            file.write(f"{seed} ")
            file.write(json.dumps(mutants.read(seed)) + "\n")


CALLS = (
    "execve,execveat,fork,vfork,clone,clone3,open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,"
    "mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,truncate,chmod,fchmodat,mknod,mknodat,socket,connect,bind"
)
_QUIET = re.compile(r"clone3?\(.*CLONE_THREAD|O_RDONLY|= -1 E|^\d+ +(\+\+\+|---)|resumed>")


def traced(log: Path) -> list[str]:
    """Returns the strace command that logs the calls of the command after it to a file."""
    return [
        *("strace", "-f", "--seccomp-bpf", "-qq", "-e", "signal=none"),
        *("-o", str(log), "-e", f"trace={CALLS}"),
    ]


def offences(log: Path, folder: Path) -> list[str]:
    """Lists calls that reading a file must not make: processes, files outside the folder, connections."""
    found = []
    begun = False
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            begun = begun or _BEGIN in line
            if not begun or _QUIET.search(line) or str(folder) in line or "/dev/null" in line:
                continue
            found.append(line.strip()[:300])
    return found


def batch(folder: Path, first: int, last: int) -> tuple[dict[int, str], list[str]]:
    """Reads some mutants; returns their outcomes and the child's forbidden calls."""
    if shutil.which("strace") is None:
        raise UsageError("there is no strace", hint="apt-get install strace")
    log = folder / "calls"
    outcomes: dict[int, str] = {}
    found: list[str] = []
    while first < last:
        words = [sys.executable, __file__, "--child", str(folder), str(first), str(last)]
        (folder / _BEGIN).unlink(missing_ok=True)
        process = subprocess.Popen([*traced(log), *words], cwd=folder)
        lines = watched(process, folder / f"outcomes-{first}")
        found += offences(log, folder)
        for line in lines:
            seed, _, text = line.partition(" ")
            if text.endswith("\n"):
                outcomes[int(seed)] = json.loads(text)
        done = max((seed for seed in outcomes if seed >= first), default=first - 1) + 1
        if done < last:
            outcomes[done] = f"the process ended with {process.returncode}"
            done += 1
        first = done
    return outcomes, found


def watched(process: subprocess.Popen[bytes], outcomes: Path) -> list[str]:
    """Waits for the child and kills it if one mutant takes too long; returns the lines that it has written."""
    lines: list[str] = []
    changed = time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        now = (
            outcomes.read_text(encoding="utf-8").splitlines(keepends=True)
            if outcomes.exists()
            else []
        )
        if len(now) != len(lines):
            lines, changed = now, time.monotonic()
        if time.monotonic() - changed > _SLOW_S:
            process.kill()
            process.wait()
    return (
        outcomes.read_text(encoding="utf-8").splitlines(keepends=True) if outcomes.exists() else []
    )


def measure(report: Report) -> None:
    options = report.options
    count = options.count or (QUICK_COUNT if report.quick else COUNT)
    became: Counter[str] = Counter()
    faults: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for first in range(options.seed, options.seed + count, 1000):
            last = min(first + 1000, options.seed + count)
            outcomes, found = batch(folder, first, last)
            for seed, outcome in sorted(outcomes.items()):
                right = outcome in ("same", "other program", "refused")
                became[outcome if right else "fault"] += 1
                if not right:
                    faults.append(f"mutant {seed}: {outcome}")
            faults += [f"mutants {first} to {last}: {call}" for call in found]
            print(f"{last - options.seed} of {count}: {dict(became)}", flush=True)
    for fault in faults:
        print(fault[:400])
        report.row(fault=fault)
    report.row(seconds=time.monotonic() - began, **became)
    report.bar("mutants", sum(became.values()), "at least", COUNT, "")
    report.bar("faults", len(faults), "at most", 0, "")
    report.bar("mutants that make another program", became["other program"], "at least", 1, "")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=positive(int), help="mutants; 10000 unless --quick")
    parser.add_argument("--seed", type=int, default=1, help="the first mutant's seed (%(default)s)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(run(__doc__ or "", measure, options))
