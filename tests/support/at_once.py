"""Several threads that open one store at the same moment."""

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

from refold.edits import Edit
from refold.errors import StoreError


def opened_at_once(open_store: Callable[[], Any], edits: list[Edit]) -> list[StoreError]:
    """Each of *edits* saved by a thread of its own that opens the store first; what went wrong."""
    barrier, failures = Barrier(len(edits)), list[StoreError]()

    def open_and_save(one: Edit) -> None:
        try:
            barrier.wait()
            with open_store() as store:
                store.save([one])
        except StoreError as error:
            failures.append(error)

    threads = [Thread(target=open_and_save, args=(one,)) for one in edits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
