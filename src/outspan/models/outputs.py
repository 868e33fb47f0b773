"""What models return: logits, or an output of Hugging Face transformers that contains them."""

from torch import Tensor


def read_logits(output: object) -> Tensor:
    """Return the logits of a model's output: the tensor itself, or its attribute `logits`. Others raise a ValueError."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        expected = "logits, a tensor [B, classes], or an output with the attribute logits"
        raise ValueError(f"the model must return {expected}, got {type(output).__name__}: wrap it in a module that does")
    return logits
