"""The four commands of the soft/hard preset over HTTP (S2-33 to S2-37)."""

from functools import partial
from typing import Any

from refold.errors import StoreError
from refold.gateway.api.context import Desk, Problem


async def _command(name: str, desk: Desk, arguments: dict[str, Any]) -> dict[str, Any]:
    asked = {"command": f"compactor_{name}", "arguments": arguments}
    response = await desk.aside(partial(desk.commands.call, asked))
    if error := response.get("error"):
        if error["code"] == "store_failed":
            raise StoreError(error["message"])  # `problems` has words without its address
        raise Problem(422, error["code"], error["message"])
    return response


estimate_tokens = partial(_command, "estimate_tokens")
estimate_messages_tokens = partial(_command, "estimate_messages_tokens")
check_threshold = partial(_command, "check_threshold")
compact = partial(_command, "compact")
