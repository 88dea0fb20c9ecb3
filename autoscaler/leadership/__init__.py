"""Who may write: an election by Lease, judged by nobody's clock but one's own.

``election`` decides and does no I/O; ``elector`` speaks to the API server for it; ``fence`` asks
both before every write; ``last_resort`` has the kernel end a process that can't end itself.
"""
