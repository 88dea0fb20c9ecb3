"""Metrics sources, one kind a module: each has a frozen ``Params`` and ``build(params, context)``.

They turn what an engine shows of itself into ``Metrics``. Everything that is read over the network
is untrusted: bounded in time, bytes and series, and never more than data.
"""
