"""`/refold/api`: the gateway's API for people and programs, and the page at `/refold/`
(docs/gateway-operations.md)."""

from refold.gateway.api.app import Api, document
from refold.gateway.api.operations import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Api", "Operation", "document"]
