"""The functions of `refold.corpus` as operators of Data-Juicer (docs/corpus.md).

Name this file under `custom_operator_paths` in a recipe.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from data_juicer.ops.base_op import OPERATORS, Mapper

from refold import corpus

Columns = dict[str, list[Any]]


class _RefoldMapper(Mapper):
    """Base of the operators: makes rows of each sample with the columns of a function of
    `refold.corpus`. Each row also has the sample's other columns."""

    _batched_op = True
    function: ClassVar[Callable[..., Columns]]

    def __init__(self, settings: dict[str, Any] | None = None, **options: Any) -> None:
        """Take the function's *settings*, and the *options* that every operator has."""
        super().__init__(**options)
        self._settings = settings or {}

    def process_batched(self, samples: Columns) -> Columns:
        """Return the rows of all samples."""
        columns: Columns = {}
        for values in zip(*samples.values(), strict=True):
            sample = {name: [value] for name, value in zip(samples, values, strict=True)}
            rows = self.function(sample, **self._settings)
            repeated = {name: value * len(rows["error"]) for name, value in sample.items()}
            for name, column in (repeated | rows).items():
                columns.setdefault(name, []).extend(column)
        return columns


@OPERATORS.register_module("refold_unroll_mapper")
class RefoldUnrollMapper(_RefoldMapper):
    """Cuts a session where a context compactor would have cut it: `settings` of `unroll`."""

    function = staticmethod(corpus.unroll_batch)


@OPERATORS.register_module("refold_compact_mapper")
class RefoldCompactMapper(_RefoldMapper):
    """Compacts a session: `settings` of `compact`."""

    function = staticmethod(corpus.compact_batch)


@OPERATORS.register_module("refold_stats_mapper")
class RefoldStatsMapper(_RefoldMapper):
    """Measures a session: `settings` of `stats`."""

    function = staticmethod(corpus.stats_batch)


@OPERATORS.register_module("refold_check_mapper")
class RefoldCheckMapper(_RefoldMapper):
    """Lists what a provider would refuse in a session: `settings` of `check`."""

    function = staticmethod(corpus.check_batch)


@OPERATORS.register_module("refold_repair_mapper")
class RefoldRepairMapper(_RefoldMapper):
    """Repairs what a provider would refuse in a session: `settings` of `repair`."""

    function = staticmethod(corpus.repair_batch)
