"""What kernels are tuned for: targets, the search spaces of `search_spaces/`, limits of a device, and requests.

Plain data that a command can read without TVM."""

from autotune.compiler.target import spaces, targets
from autotune.compiler.target.host import cores, kernel_threads, runtime_environment
from autotune.compiler.target.request import Cores, Fleet, TuneRequest
from autotune.compiler.target.spaces import (
    Depthwise,
    FewChannels,
    ImplicitGemm,
    JoinedParts,
    Limits,
    Measure,
    RegisterProduct,
    RowSums,
    Space,
    VectorRows,
    folder,
)
from autotune.compiler.target.targets import (
    ARM_TRIPLE,
    TARGETS,
    TargetSpec,
    find,
    given_limits,
    on_cores,
    same_code,
    tvm_target,
)

__all__ = [
    "ARM_TRIPLE",
    "cores",
    "Cores",
    "Depthwise",
    "FewChannels",
    "find",
    "Fleet",
    "folder",
    "given_limits",
    "ImplicitGemm",
    "JoinedParts",
    "kernel_threads",
    "Limits",
    "Measure",
    "on_cores",
    "RegisterProduct",
    "RowSums",
    "runtime_environment",
    "same_code",
    "Space",
    "spaces",
    "TARGETS",
    "targets",
    "TargetSpec",
    "TuneRequest",
    "tvm_target",
    "VectorRows",
]
