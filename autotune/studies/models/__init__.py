"""Models of time and power: physics fitted to a few measurements, a Gaussian process, and one of kernels' schedules."""

from autotune.studies.models.acquisition import below, expected_hypervolume, expected_improvement
from autotune.studies.models.gaussian import GaussianProcess
from autotune.studies.models.kernel_model import Floats, KernelModel, Rows, Seen
from autotune.studies.models.physics import PowerModel, TimeModel, constants
from autotune.studies.models.schedule_pools import HYBRID, TaskPool, pools
from autotune.studies.models.surrogate import Belief, Surrogate, features

__all__ = [
    "Belief",
    "below",
    "constants",
    "expected_hypervolume",
    "expected_improvement",
    "features",
    "Floats",
    "GaussianProcess",
    "HYBRID",
    "KernelModel",
    "pools",
    "PowerModel",
    "Rows",
    "Seen",
    "Surrogate",
    "TaskPool",
    "TimeModel",
]
