"""`python -m lace` is the command `lace`."""

from lace.cli.main import main

if __name__ == "__main__":
    main()
