"""The command `lace`: one module a command, thin over the front door; alone reads the environment.

`main` runs a command line, `command` says what every command has in common, `session`
is one run's state, `output` writes for people and for programs.
"""
