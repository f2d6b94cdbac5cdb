"""Record facts (020): the predicates, their text, and how records give them."""
