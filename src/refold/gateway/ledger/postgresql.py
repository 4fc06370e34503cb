"""The books in a PostgreSQL database, beside the store's own tables. Needs the extra `postgresql`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from refold.stores.postgresql_pool import PostgreSQLPool
from refold.stores.sql import close_before_forks


class Served:
    """A connection to the database at *url* with the tables of one part of the books, made by its *migrations*."""

    def __init__(self, url: str, migrations: Sequence[Sequence[str]], part: str, timeout: float) -> None:
        self._pool = PostgreSQLPool(url, timeout, 2, migrations, part)
        close_before_forks(self._pool)

    def connection(self, doing: str) -> AbstractContextManager[Any]:
        """A connection for this thread alone."""
        return self._pool.connection(doing)

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection in a transaction. Edits do not change, so their version does not."""
        return self._pool.transaction(edits=False)

    def close(self) -> None:
        """Let go of the database."""
        self._pool.close()
