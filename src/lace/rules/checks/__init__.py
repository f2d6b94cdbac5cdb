"""The checks of a lacegram, one family a module; each adds findings to a reporter."""
