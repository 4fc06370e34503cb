"""`/refold/api`: what people and programs may ask of the gateway, and the page at `/refold/` (docs/gateway-api.md)."""

from refold.gateway.api.app import Api
from refold.gateway.api.openapi import document
from refold.gateway.api.operation import Operation
from refold.gateway.api.routes import OPERATIONS

__all__ = ["OPERATIONS", "Api", "Operation", "document"]
