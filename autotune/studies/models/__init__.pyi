from .acquisition import below, expected_hypervolume, expected_improvement
from .gaussian import GaussianProcess
from .kernel_model import KernelModel, Rows, Seen
from .physics import PowerModel, TimeModel, constants
from .schedule_pools import HYBRID, TaskPool, pools
from .surrogate import Belief, Floats, Surrogate, features

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
