"""Let several threads open one store at the same moment."""

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

from refold.edits import Edit
from refold.errors import StoreError


def save_at_once(open_store: Callable[[], Any], edits: list[Edit]) -> list[StoreError]:
    """Save each of *edits* in its own thread, which opens the store first. Return the errors."""
    barrier, failures = Barrier(len(edits)), list[StoreError]()

    def open_and_save(edit: Edit) -> None:
        try:
            barrier.wait()
            with open_store() as store:
                store.save([edit])
        except StoreError as error:
            failures.append(error)

    threads = [Thread(target=open_and_save, args=(edit,)) for edit in edits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
