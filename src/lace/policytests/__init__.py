"""Policy tests: files that say what a policy must allow and refuse, run and measured."""

__all__: list[str] = []
