"""Policy tests: files that say what a policy must allow and refuse, run and measured."""
