"""`python -m refold`: the command line where no script is installed."""

from refold.cli import main

main()
