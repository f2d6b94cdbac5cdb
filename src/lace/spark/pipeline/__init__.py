"""The stages of the pipeline, from tables to tables of a warehouse."""
