"""Policies: one a file, each with `Params` and `build(params, context)`; they do not know one another."""
