"""A trainer inside an emulated phone: a script whose steps take the time of the phone's model.

The script asks a file of the emulated kernel. Each step is one load of the model on the cores that the script's
process may use, so that clocks, heat and the battery follow.
"""

from __future__ import annotations

from autotune.emulator.kernel import KernelFile
from autotune.emulator.model import ALEXNET_B16, TRAINER, Load, Soc, scaled
from autotune.errors import UsageError

PATH = "/sys/kernel/autotune/train"
PROGRAM = TRAINER

SCRIPT = f"""#!/system/bin/sh
# emulated_train [--steps N] [--threads N] [--scale X]: prints a line a step, for ever without --steps.
steps=-1 threads=0 scale=1
while [ $# -gt 1 ]; do
  case $1 in
    --steps) steps=$2 ;;
    --threads) threads=$2 ;;
    --scale) scale=$2 ;;
    --noise | --seed) ;;
    *) echo "emulated_train: $1 is not known" >&2; exit 2 ;;
  esac
  shift 2
done
mask=$(taskset -p $$) || exit 1
mask=${{mask##* }}
done=0
while [ $done -ne $steps ]; do
  echo "$mask $threads $scale" > {PATH} || exit 1
  while read left < {PATH} && [ "$left" != 0 ]; do sleep $left; done
  done=$((done + 1))
  echo "step $done"
done
"""


def trainer_files(soc: Soc) -> dict[str, KernelFile]:
    """Returns the file that the script asks.

    It accepts a step's cores (a hexadecimal mask), threads (0 for one on each core) and scale, and returns the
    step's remaining seconds.
    """
    steps: list[Load] = []

    def begin(text: str) -> None:
        mask, threads, scale = text.split()
        bits = int(mask, 16)
        cpus = tuple(cpu for cpu in soc.profile.cpus if bits >> cpu & 1)
        for load in steps:
            soc.end(load)
        try:
            load = soc.begin(
                scaled(ALEXNET_B16, float(scale)), cpus, steps=1, threads=int(threads) or None
            )
        except UsageError as error:
            raise ValueError(str(error)) from error
        steps[:] = [load]

    def left() -> str:
        seconds = soc.remaining_s(steps[0]) if steps else 0.0
        return f"{seconds:.6f}\n" if seconds > 0 else "0\n"

    return {PATH: KernelFile(left, begin, mode=0o666)}
