from .per_operator import PlanRun, candidates
from .plan_file import StepPlan, is_plan, read_plan
from .step_plans import PlannedSetting, step_plan
from .step_profiles import named_calls, operators, roles

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
