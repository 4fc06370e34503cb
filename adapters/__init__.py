"""Refold inside real agent frameworks: `make adapters`, or `python -m adapters langchain`.

Each framework runs in its own environment, `.adapters/NAME`, with the releases pinned in
`requirements/adapters-NAME.txt`. Its own agent loop runs one script (`adapters.session`): 30
answers of the model, parallel calls, a tool that fails, an image, thinking, streams, and a new
process in the middle. The model is a local server with a small window. `adapters.verdict` judges
the requests that reached it, in the same way for all.

To add a framework:

1. `requirements/adapters-NAME.txt`: plain `package==version` lines, as from `pip freeze`. A line
   `# python 3.12` names the minimum Python version.
2. `adapters/NAME.py` (`-` is `_`) with the members of `adapters.framework.Framework`: `PACKAGE`;
   `talk(job)`, which runs the turns of a job with the framework's own agent, its own persistence
   in `job.place` and Refold's adapter, and returns a `Talk`; `REGRESSIONS` and `TIMINGS`, which
   may be empty.
3. Its name in `FRAMEWORKS` (`adapters.__main__`), with the name of its environment.
4. Its section in docs/frameworks.md, with blocks that begin with ```` ```python NAME ````: they
   run in the framework's environment, from top to bottom, after those that begin with
   ```` ```python each ````.

The frameworks in `BY_HAND` have no adapter: their module has no `talk`, and the page shows the
code to write. The Vercel AI SDK, which is TypeScript, is in `adapters.ai_sdk`.

Models are reached over HTTP: give the framework's client the base URL `job.url`, followed by `/v1`
for OpenAI's API. Answers come in the API of the request: Chat Completions, Responses, Messages,
generateContent.
"""
