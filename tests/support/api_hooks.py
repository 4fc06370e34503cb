"""Hooks for schemathesis: what it sends names a session and a conversation that exist, half of the time.

The ids and the conversation come in environment variables, since schemathesis runs in a process of its own.
"""

import json
import os
from random import Random

import schemathesis

REAL = json.loads(os.environ.get("REFOLD_TEST_REAL", "{}"))
RANDOM = Random(4)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Put what exists in the place of what was made up."""
    positive = case.meta is None or case.meta.generation.mode.is_positive
    for holder in (case.body, case.query):
        if positive and isinstance(holder, dict):
            for name in holder.keys() & REAL.keys():
                if RANDOM.random() < 0.5:
                    holder[name] = RANDOM.choice(REAL[name])
