"""`python -m fastattnerase` says what is installed here; with arguments it is the command."""

import sys

from fastattnerase.cli import main

if len(sys.argv) == 1:
    sys.argv.append("info")
main()
