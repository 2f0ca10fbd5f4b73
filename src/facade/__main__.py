"""`python -m facade` is `facade`."""

from facade.cli import main

main()
