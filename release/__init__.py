"""What is published, built and tried as somebody who installs it has it: `make release`.

Nothing is uploaded. The wheel and the sdist in `dist` are made of this directory, and then nothing
of it is used any more: each extra is installed from the wheel into an environment of its own.
`release.container` does the same for the Containerfile, without a container engine: `make
container-check`. Environments are below `.release`, or the directory in REFOLD_RELEASE.
"""
