"""The four commands of the soft/hard preset over HTTP (S2-33 to S2-37)."""

from functools import partial
from typing import Any

from refold.gateway.api.desk import Desk
from refold.gateway.api.problems import Problem

_STATUSES = {"bad_arguments": 422, "store_failed": 503}


async def _command(name: str, desk: Desk, arguments: dict[str, Any]) -> dict[str, Any]:
    asked = {"command": f"compactor_{name}", "arguments": arguments}
    response = await desk.aside(partial(desk.commands.call, asked))
    if error := response.get("error"):
        raise Problem(_STATUSES[error["code"]], error["code"], error["message"])
    return response


estimate_tokens = partial(_command, "estimate_tokens")
estimate_messages_tokens = partial(_command, "estimate_messages_tokens")
check_threshold = partial(_command, "check_threshold")
compact = partial(_command, "compact")
