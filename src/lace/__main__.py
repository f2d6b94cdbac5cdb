"""`python -m lace` is the command `lace`."""

from lace.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
