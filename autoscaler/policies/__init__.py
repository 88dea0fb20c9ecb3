"""Policies: one a file, with `Params` and `build(params, context)`; none knows another."""
