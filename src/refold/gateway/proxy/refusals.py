"""What is done when an upstream has refused a request: it is changed and sent again."""

from dataclasses import replace

from refold.gateway.http.peek import ResponseStart
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.policy.upstream_errors import is_context_error, is_thinking_refused
from refold.gateway.proxy.call import Call
from refold.gateway.tenants import TenantResolver

MAX_RETRIES = {"context": 1, "binding": 2}
"""How often a request is changed and sent again, by what its upstream refused: its length, its
signed thinking (AN-12)."""


async def change_refused(
    pipeline: Pipeline, tenants: TenantResolver, call: Call, status: int, start: ResponseStart
) -> bool:
    """Shrink a request that was too long, drop thinking that was refused, prepare anew what was
    prepared for another tenant; return False if nothing can be changed."""
    if call.is_tentative and not await _confirm_tenant(pipeline, tenants, call, status):
        return True
    if start.error is None or call.incoming is None or call.outgoing is None:
        return False
    if call.api and is_context_error(call.api, start.error_status(status), start.error):
        refused, change = "context", pipeline.shrink
    elif is_thinking_refused(call.incoming.api, status, start.error):
        refused, change = "binding", pipeline.drop_thinking
    else:
        return False
    if call.retries.count(refused) >= MAX_RETRIES[refused]:
        return False
    call.retries.append(refused)
    outgoing = await change(call.incoming, call.outgoing, start.error)
    call.outgoing = outgoing or call.outgoing
    return outgoing is not None


async def _confirm_tenant(
    pipeline: Pipeline, tenants: TenantResolver, call: Call, status: int
) -> bool:
    """Return whether the upstream has taken the token, so that the caller is who they claim to be.

    If not, prepare the request as one of the token alone: nobody is answered out of what was
    decided for another.
    """
    call.is_tentative = False
    if call.incoming is None or call.outgoing is None or call.tenant is None:
        return True
    if 200 <= status < 300:
        tenants.accept(call.tenant)
        await pipeline.commit(call.outgoing)
        return True
    call.incoming = replace(call.incoming, credential=call.tenant.credential)
    call.outgoing = await pipeline.prepare(call.incoming)
    return False
