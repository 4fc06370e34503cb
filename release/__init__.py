"""Builds the published packages and tries them as a user who installs them: `make release`.

Nothing is uploaded. The wheel and the sdist in `dist` are built from this directory, which is not
used any further: each extra is installed from the wheel into its own environment.
`release.container` does the same for the Containerfile, without a container engine: `make
container-check`. Environments are below `.release`, or the directory in REFOLD_RELEASE.
"""
