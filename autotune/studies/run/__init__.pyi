from .cpu_config import CpuConfigRun, Outcome, Progress
from .finals import Final, contenders, figures_ratio, final_of, measure_again
from .identity import identity_id, is_of
from .interleaving import figures_of, in_both, interleaved_blocks
from .repeats import REFERENCE_EVERY, Record
from .results import Found, best_point, found_of, nearest_text, result
from .storage import (
    JOURNAL_PREFIX,
    check_storage,
    default_url,
    explained_faults,
    hidden,
    open_storage,
    without_password,
)
from .study import SAMPLERS, Study, StudyRequest, StudyTrial, study_of

__all__ = [
    "best_point",
    "check_storage",
    "contenders",
    "CpuConfigRun",
    "default_url",
    "explained_faults",
    "figures_of",
    "figures_ratio",
    "Final",
    "final_of",
    "Found",
    "found_of",
    "hidden",
    "identity_id",
    "in_both",
    "interleaved_blocks",
    "is_of",
    "JOURNAL_PREFIX",
    "measure_again",
    "nearest_text",
    "open_storage",
    "Outcome",
    "Progress",
    "Record",
    "REFERENCE_EVERY",
    "result",
    "SAMPLERS",
    "Study",
    "study_of",
    "StudyRequest",
    "StudyTrial",
    "without_password",
]
