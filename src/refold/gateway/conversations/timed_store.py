"""A store that says when it is being waited for, so that a slow store can be told from slow work."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from refold.edits import Edit
from refold.stores.store import Store, replacement_count


class TimedStore:
    """A store as it is; *mark* is called with True before and False after what may take long, *renewed*
    when it was found to be deleted or replaced, *keep* after edits were saved."""

    def __init__(
        self,
        store: Store,
        mark: Callable[[bool], None],
        renewed: Callable[[], None] = lambda: None,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._mark, self._tell, self._keep = store, mark, renewed, keep
        self._renewals = replacement_count(store)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._marked(found) if callable(found) else found

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """As the store's."""
        with self._watched():
            return self._store.load(tips)

    def save(self, edits: Iterable[Edit]) -> None:
        """As the store's."""
        with self._watched():
            self._store.save(edits)
            self._keep()

    def remove(self, ids: Iterable[str]) -> None:
        """As the store's."""
        with self._watched():
            self._store.remove(ids)

    def version(self) -> int:
        """As the store's."""
        with self._watched():
            return self._store.version()

    def _marked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*given: Any, **named: Any) -> Any:
            with self._watched():
                return call(*given, **named)

        return marked

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._mark(True)
        try:
            yield
        finally:
            if (found := replacement_count(self._store)) != self._renewals:
                self._renewals = found
                self._tell()
            self._mark(False)
