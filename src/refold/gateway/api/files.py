"""The sessions that clients keep on this machine, which did not pass the gateway: `files`."""

import os
from pathlib import Path
from typing import Annotated

from refold.gateway.api.answers import Answer
from refold.gateway.api.arguments import Arguments, Limit, Offset, about
from refold.gateway.api.context import ApiContext
from refold.session_files import discover
from refold.session_files.client_files import NAMES, short_id


class FilesArguments(Arguments):
    """Which of them."""

    query: Annotated[str, about("Words in id, title, client or project.", max_length=200)] = ""
    limit: Limit = 100
    offset: Offset = 0


class SessionFile(Answer, kw_only=True):
    """A session in a client's own file."""

    id: Annotated[str, about("Names it on the command line: `refold stats ID`.")]
    client: str
    project: str
    title: Annotated[str, about("As the client wrote it down; often empty: no file is read.")]
    latest: Annotated[float, about("When the file was written, in seconds since 1970.")]
    size: Annotated[int, about("Bytes of the file; -1 if that is not known.")]


class FilesAnswer(Answer):
    """Sessions of files, the latest first."""

    files: list[SessionFile]
    total: int


def files(context: ApiContext, asked: FilesArguments) -> FilesAnswer:
    """Return a page of them; none unless the gateway is to list them."""
    if not context.lists_files:
        return FilesAnswer([], 0)
    words, listed = asked.query.lower().strip(), list[SessionFile]()
    for found_file in discover(Path.home(), os.environ):
        row = SessionFile(
            id=short_id(found_file),
            client=NAMES.get(found_file.client, found_file.client),
            project=Path(found_file.cwd).name,
            title=" ".join(found_file.title.split())[:200],
            latest=found_file.modified.timestamp(),
            size=found_file.size_bytes,
        )
        if words in f"{row.id} {row.title} {row.client} {row.project}".lower():
            listed.append(row)
    return FilesAnswer(listed[asked.offset : asked.offset + asked.limit], len(listed))
