"""Plans: the schedule, the cores and the clocks of each call of a step, as files that others carry out."""

from autotune.studies.plans.per_operator import PlanRun, candidates
from autotune.studies.plans.plan_file import StepPlan, is_plan, read_plan
from autotune.studies.plans.step_plans import PlannedSetting, step_plan
from autotune.studies.plans.step_profiles import named_calls, operators, roles

__all__ = [
    "candidates",
    "is_plan",
    "named_calls",
    "operators",
    "PlannedSetting",
    "PlanRun",
    "read_plan",
    "roles",
    "step_plan",
    "StepPlan",
]
