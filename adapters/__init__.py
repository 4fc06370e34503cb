"""Refold inside real agent frameworks: `make adapters`, or `python -m adapters langchain`.

Each framework runs in an environment of its own, `.adapters/NAME`, with the releases pinned in
`requirements/adapters-NAME.txt`. Its own agent loop goes through one script (`adapters.session`):
30 answers of the model, parallel calls, a tool that fails, an image, thinking, streams, and another
process in the middle. The model is a local server with a small window. What reached it is judged
in `adapters.verdict`, the same for all.

To add a framework:

1. `requirements/adapters-NAME.txt`: plain `package==version` lines, as `pip freeze` gives them. A
   line `# python 3.12` names the least Python that it needs.
2. `adapters/NAME.py` (`-` is `_`) with what `adapters.framework.Framework` names: `PACKAGE`;
   `talk(job)`, which holds the turns of a job by the framework's own agent, its own persistence in
   `job.place` and Refold's adapter, and returns a `Talk`; `REGRESSIONS` and `TIMINGS`, which may be
   empty.
3. Its name in `FRAMEWORKS` (`adapters.__main__`), with the name of its environment.
4. Its section in docs/frameworks.md, with blocks that begin with ```` ```python NAME ````: they
   run in the framework's environment, from top to bottom, behind those that begin with
   ```` ```python each ````.

Those in `BY_HAND` have no adapter: their module has no `talk`, and the page says what to write. The
Vercel AI SDK, which is TypeScript, is in `adapters.ai_sdk`.

Models are reached over HTTP: give the framework's client the base URL `job.url`, with `/v1` behind
it for OpenAI's API. Answers come in whatever API is asked for: Chat Completions, Responses,
Messages, generateContent.
"""
