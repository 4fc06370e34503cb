"""Hooks for schemathesis: half of its requests name a session and a conversation that exist.

These come in an environment variable, because schemathesis runs in another process.
"""

import json
import os
from random import Random

import schemathesis

REAL = json.loads(os.environ.get("REFOLD_TEST_REAL", "{}"))
RANDOM = Random(4)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Replace invented ids by real ones."""
    positive = case.meta is None or case.meta.generation.mode.is_positive
    for holder in (case.body, case.query):
        if positive and isinstance(holder, dict):
            for name in holder.keys() & REAL.keys():
                if RANDOM.random() < 0.5:
                    holder[name] = RANDOM.choice(REAL[name])
