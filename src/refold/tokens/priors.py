"""What a provider counts for an estimated token, as long as it reported nothing (F15)."""

from pathlib import Path

from refold.tokens.model_table import ModelTable


def _read_ratio(*, ratio: float) -> float:
    return float(ratio)


PRIORS = ModelTable(Path(__file__).with_name("priors.json"), _read_ratio)


def prior_of(model: str) -> float:
    """Return the tokens that the provider of *model* is expected to count for an estimated one; 1.0
    for a family of which nothing was measured."""
    return PRIORS.lookup(model) or 1.0


def no_prior(model: str) -> float:  # noqa: ARG001 - as `prior_of`
    """Return 1.0: a token that is counted by the model's own tokenizer, or only compared, is one
    token."""
    return 1.0
