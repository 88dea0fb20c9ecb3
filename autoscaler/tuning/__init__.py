"""Searches a policy's parameters by simulation, and judges them on loads it was not tuned on.

``space`` is where it looks, ``cases`` what is played, ``goals`` what is good, ``search`` how it
looks, ``tuned_file`` what it writes.
"""
