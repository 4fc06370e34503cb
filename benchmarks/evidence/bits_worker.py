"""Runs in an environment with llama-cpp-python and measures how surprising a text is to a model.

It reads lines of JSON and answers with a line each. `{"model": path}` loads a GGUF file and returns
`{}`. `{"head": text, "prompt": text, "action": text, "longest": n, "most": n}` returns the `bits`
that the first *longest* tokens of the action cost after *most* tokens (null: all), which are the
head and the newest tokens of the prompt. It also returns the number of these `tokens` and of those
of the `action`. One thread.
"""

import json
import sys

import llama_cpp
import numpy as np

BATCH = 512
"""Tokens read at once."""
CONTEXT = 16_384
"""Tokens of a prompt with its action."""


class Model:
    """A language model that reads a text and reports the likelihood of each token."""

    def __init__(self, path: str) -> None:
        self.llama = llama_cpp.Llama(
            path,
            n_ctx=CONTEXT,
            n_batch=BATCH,
            n_threads=1,
            n_threads_batch=1,
            flash_attn=True,
            swa_full=False,
            verbose=False,
        )
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def tokens_of(self, text: str, *, is_start: bool) -> list[int]:
        """Return the tokens of a text."""
        return self.llama.tokenize(text.encode(), add_bos=is_start, special=False)

    def read(self, tokens: list[int], at: int, *, with_logits: bool) -> None:
        """Read at most `BATCH` tokens at position *at*. Raises RuntimeError."""
        self.batch.n_tokens = len(tokens)
        for n, token in enumerate(tokens):
            self.batch.token[n] = token
            self.batch.pos[n] = at + n
            self.batch.n_seq_id[n] = 1
            self.batch.seq_id[n][0] = 0
            self.batch.logits[n] = with_logits or n == len(tokens) - 1
        if llama_cpp.llama_decode(self.llama.ctx, self.batch):
            raise RuntimeError("the model did not read the text")

    def bits_after(self, row: int, token: int) -> float:
        """Return the cost of *token* after the token at *row* of the last batch."""
        pointer = llama_cpp.llama_get_logits_ith(self.llama.ctx, row)
        logits = np.ctypeslib.as_array(pointer, shape=(self.llama.n_vocab(),)).astype(np.float64)
        top = logits.max()
        return float((top + np.log(np.exp(logits - top).sum()) - logits[token]) / np.log(2))

    def measure(self, prompt: list[int], action: list[int]) -> float:
        """Return the bits of *action*, at most `BATCH` tokens, after *prompt*."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.llama.ctx), True)
        for at in range(0, len(prompt), BATCH):
            self.read(prompt[at : at + BATCH], at, with_logits=False)
        last = (len(prompt) - 1) % BATCH
        first = self.bits_after(last, action[0])
        self.read(action, len(prompt), with_logits=True)
        return first + sum(self.bits_after(n, token) for n, token in enumerate(action[1:]))


def main() -> None:
    """Answer line by line until the input ends."""
    model = None
    for line in sys.stdin:
        question = json.loads(line)
        if model is None:
            model, answer = Model(question["model"]), {}
        else:
            start, *prompt = model.tokens_of(question["prompt"], is_start=True)
            head = model.tokens_of(question["head"], is_start=False)
            newest = (question["most"] or len(prompt)) - len(head)
            prompt = [*head, *prompt[max(0, len(prompt) - newest) :]]
            action = model.tokens_of(question["action"], is_start=False)[: question["longest"]]
            bits = model.measure([start, *prompt], action)
            answer = {"bits": bits, "tokens": len(prompt), "action": len(action)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
