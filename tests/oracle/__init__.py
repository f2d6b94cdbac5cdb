"""Simple forms of the engine, the store and the policy, which the product is compared with."""
