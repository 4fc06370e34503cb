"""Prompts: texts with a name, told apart by a hash."""

from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that is put to a model. The ledger records its `id`."""

    name: str
    text: str

    @property
    def id(self) -> str:
        """Name and the first 8 hex digits of the text's hash: `summary@1f0c2d3e`."""
        return f"{self.name}@{blake2b(self.text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"

    def __repr__(self) -> str:
        return f"Prompt({self.id})"

    def plus(self, *texts: str) -> "Prompt":
        """This prompt followed by other texts, those that say nothing left out."""
        return Prompt(
            self.name, "\n\n".join(text.strip() for text in (self.text, *texts) if text.strip())
        )

    def fill(self, **values: object) -> "Prompt":
        """This prompt with `{name}` replaced by each of *values*; any other brace stays as it is."""
        text = self.text
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return Prompt(self.name, text)


def load_prompt(name: str) -> Prompt:
    """A prompt that comes with the package: `summary`, `whole`, `part`, `reduce` or `here`
    (files in `refold/summarizers/prompts`). Raises FileNotFoundError."""
    text = (
        files("refold.summarizers").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    )
    return Prompt(name, text.strip())


def as_prompt(given: "Prompt | str") -> Prompt:
    """A prompt as it is, or a text as a prompt called `custom`."""
    return Prompt("custom", given) if isinstance(given, str) else given
