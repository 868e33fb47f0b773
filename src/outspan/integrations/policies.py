"""Policies as arguments of the callbacks and trainers of other frameworks."""

import inspect

from torch import Tensor

from outspan.dropin.draws import Transform
from outspan.messages import shown
from outspan.policies.protocols import LearningPolicy, Policy


def check_policy(policy: object) -> Policy:
    """Return a policy. Anything else, such as a proposal or a drop-in transform, raises a ValueError."""
    problem = f"policy must be a policy such as outspan.Plain(...), got {shown(policy)}"
    if isinstance(policy, Transform):  # it is called like a policy, but returns images and labels
        how = "pass for example outspan.Plain(outspan.randaugment(2, 9), classes=10, preprocess=normalize)"
        raise ValueError(f"{problem}, a drop-in transform: {how}")
    if not isinstance(policy, Policy) or isinstance(policy, type):
        raise ValueError(problem)
    try:
        inspect.signature(policy).bind(None, None, step=0)
    except TypeError:
        how = "outspan.Plain(proposal, classes=10, preprocess=normalize) makes a policy of a proposal"
        raise ValueError(f"{problem}: {how}") from None
    return policy


def policy_state(policy: Policy) -> dict[str, Tensor]:
    """Return what a checkpoint must store of a policy: nothing, unless it learns."""
    return policy.state_dict() if isinstance(policy, LearningPolicy) else {}


def restore_policy(policy: Policy, state: dict[str, Tensor]) -> None:
    """Continue from the state of a checkpoint. One that does not fit the policy raises a ValueError."""
    name = type(policy).__name__
    if not state and policy_state(policy):
        how = "pass the policy with which it was saved, or start a new run from the weights of the model"
        raise ValueError(f"the checkpoint has no state of a policy that learns, and policy is {name}: {how}")
    if isinstance(policy, LearningPolicy):
        policy.load_state_dict(state)
    elif state:
        raise ValueError(f"the checkpoint has the state of a policy that learns, and policy is {name}: pass the same policy")
